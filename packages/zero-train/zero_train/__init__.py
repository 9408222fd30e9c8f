"""Agents, the training loop and evaluation for search-based reinforcement learning.

- Agents: `ExpertIteration` (AlphaZero is one form of it), `MuZero`, `SPO`, `MPO`, `PPO`; your own
  derives from `AbstractAgent`.
- The loop: `Loop` says what is trained on what; `init` makes its state, and `step` collects,
  stores and learns.
- Actors: `PlanningActor`, `PolicyActor`, `RandomActor`.
- Evaluation: `evaluate`, `match`, `fit_elo`, `interquartile_mean`.
- Modules: `zero_train.losses` and `zero_train.returns`.
- What is kept on disk, and the command line, are the package zero-app.

What holds of all of them, and is not said again:

- Arguments that a function cannot take, by themselves or beside each other, raise a ValueError of
  one line that names them.
- A key is consumed: every call takes another one.
- Networks, evaluators and policies take one example. Values and advantages are from the view of the
  player to move.
- Rows that were collected are `[envs, time]`, those of a batch `[batch]` or, in windows,
  `[batch, time]`.
- A move is wrong where its action is NaN or out of the environment's range, its reward is not
  finite, or its discount is not between -1 and 1. `evaluate`, `match`, `challenge`, `collect` and
  `rollout`, and the summaries of what they return, raise a ValueError that says which. Compiled
  code cannot raise, so under jax.jit the numbers of that row are NaN instead.
"""

import importlib.metadata
import typing

from zero_envs import lazy_names


if typing.TYPE_CHECKING:
    from . import losses as losses, returns as returns
    from ._actor_critic import (
        AbstractActorCritic as AbstractActorCritic,
        ActorCritic as ActorCritic,
        ActorCriticState as ActorCriticState,
    )
    from ._actors import (
        candidates_and_value as candidates_and_value,
        indifferent as indifferent,
        PlanningActor as PlanningActor,
        PlanRecord as PlanRecord,
        PolicyActor as PolicyActor,
        RandomActor as RandomActor,
    )
    from ._agent import (
        AbstractActor as AbstractActor,
        AbstractAgent as AbstractAgent,
        AbstractBlockAgent as AbstractBlockAgent,
        AbstractReanalysingAgent as AbstractReanalysingAgent,
        Experience as Experience,
        Metrics as Metrics,
    )
    from ._aggregate import (
        aggregate as aggregate,
        Aggregates as Aggregates,
        Estimate as Estimate,
        interquartile_mean as interquartile_mean,
        normalise_scores as normalise_scores,
        performance_profile as performance_profile,
        probability_of_improvement as probability_of_improvement,
        stratified_bootstrap as stratified_bootstrap,
    )
    from ._best import BestSoFar as BestSoFar, challenge as challenge
    from ._collect import (
        collect as collect,
        episode_metrics as episode_metrics,
        Episodes as Episodes,
        rollout as rollout,
        start as start,
        Totals as Totals,
    )
    from ._elo import EloLadder as EloLadder, EloRatings as EloRatings, fit_elo as fit_elo
    from ._evaluation import (
        evaluate as evaluate,
        Evaluation as Evaluation,
        EvaluationSummary as EvaluationSummary,
        score_interval as score_interval,
    )
    from ._expert_iteration import (
        AbstractValueTarget as AbstractValueTarget,
        ExpertIteration as ExpertIteration,
        ExpertIterationState as ExpertIterationState,
        NStepReturns as NStepReturns,
        Outcomes as Outcomes,
    )
    from ._flops import matrix_flops as matrix_flops
    from ._hosted import close as close
    from ._latent import (
        AbstractLatentModel as AbstractLatentModel,
        LatentAfterstate as LatentAfterstate,
        LatentModel as LatentModel,
        LatentNetwork as LatentNetwork,
        LatentNode as LatentNode,
        LatentPolicyModel as LatentPolicyModel,
        LatentPrefix as LatentPrefix,
        PrefixNetwork as PrefixNetwork,
        StochasticNetwork as StochasticNetwork,
    )
    from ._learning import (
        bind as bind,
        gradient_step as gradient_step,
        if_finite as if_finite,
        init_optimiser as init_optimiser,
        legal_actions as legal_actions,
        log_policy as log_policy,
        loss_weights as loss_weights,
        mask_rows as mask_rows,
        parameters as parameters,
        per_update as per_update,
        update_target as update_target,
        with_arrays as with_arrays,
    )
    from ._loop import (
        act as act,
        draw as draw,
        Handover as Handover,
        learn as learn,
        Loop as Loop,
        LoopState as LoopState,
        shardings as shardings,
        store as store,
    )
    from ._match import (
        match as match,
        MatchResult as MatchResult,
        MatchSummary as MatchSummary,
        OPENING_PLIES as OPENING_PLIES,
    )
    from ._mesh import data_mesh as data_mesh
    from ._model import (
        EnvironmentModel as EnvironmentModel,
        evaluate_batch as evaluate_batch,
        Evaluator as Evaluator,
        FeatureEvaluator as FeatureEvaluator,
        PolicyModel as PolicyModel,
        ValueCode as ValueCode,
    )
    from ._mpo import MPO as MPO
    from ._muzero import MuZero as MuZero, MuZeroState as MuZeroState
    from ._policies import (
        AbstractReflexActor as AbstractReflexActor,
        Behaviour as Behaviour,
        DistributionActor as DistributionActor,
        masked as masked,
        Statistics as Statistics,
    )
    from ._ppo import (
        AbstractObjective as AbstractObjective,
        ActorCriticActor as ActorCriticActor,
        Clip as Clip,
        PolicyRecord as PolicyRecord,
        PPO as PPO,
        PPOState as PPOState,
        VMPO as VMPO,
    )
    from ._processes import (
        is_writer as is_writer,
        of_writer as of_writer,
        to_writer as to_writer,
        together as together,
    )
    from ._recurrent import RecurrentNetwork as RecurrentNetwork
    from ._remembering import (
        RememberingCarry as RememberingCarry,
        RememberingPlanner as RememberingPlanner,
    )
    from ._spo import ParticleRecord as ParticleRecord, SPO as SPO
    from ._step import (
        collect_half as collect_half,
        fill as fill,
        init as init,
        learn_half as learn_half,
        step as step,
        template as template,
    )
    from ._unroll import Unrolled as Unrolled
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)


__version__ = importlib.metadata.version("zero-train")
