"""Agents, the training loop, evaluation and checkpoints for search-based reinforcement learning."""

import importlib.metadata

from ._actor import (
    AbstractActor as AbstractActor,
)
from ._actor_critic import (
    AbstractActorCritic as AbstractActorCritic,
    ActorCritic as ActorCritic,
    ActorCriticState as ActorCriticState,
)
from ._actors import (
    PlanningActor as PlanningActor,
    PlanRecord as PlanRecord,
    PolicyActor as PolicyActor,
    RandomActor as RandomActor,
)
from ._agent import (
    AbstractAgent as AbstractAgent,
    AbstractBlockAgent as AbstractBlockAgent,
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
from ._best import BestSoFar as BestSoFar
from ._checkpoint import Checkpoints as Checkpoints
from ._collect import Actors as Actors, collect as collect, rollout as rollout, start as start
from ._elo import (
    EloLadder as EloLadder,
    EloRatings as EloRatings,
    fit_elo as fit_elo,
)
from ._evaluation import (
    evaluate as evaluate,
    Evaluation as Evaluation,
    EvaluationSummary as EvaluationSummary,
)
from ._experience import (
    Experience as Experience,
)
from ._expert_iteration import (
    AlphaZero as AlphaZero,
    ExpertIteration as ExpertIteration,
    ExpertIterationState as ExpertIterationState,
)
from ._layout import Result as Result, ResultKey as ResultKey
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
    update_target as update_target,
)
from ._loop import (
    collect_and_store as collect_and_store,
    compiled_step as compiled_step,
    fill as fill,
    init as init,
    step as step,
    template as template,
)
from ._loop_state import (
    Handover as Handover,
    Harvest as Harvest,
    Loop as Loop,
    LoopState as LoopState,
    Released as Released,
    shardings as shardings,
)
from ._manifest import CheckpointError as CheckpointError
from ._match import (
    match as match,
    MatchResult as MatchResult,
    MatchSummary as MatchSummary,
    score_interval as score_interval,
)
from ._mesh import data_mesh as data_mesh
from ._metrics import (
    check_finite as check_finite,
    cut_lines as cut_lines,
    JsonLines as JsonLines,
    NonFiniteError as NonFiniteError,
    read_json as read_json,
    read_lines as read_lines,
    RunError as RunError,
    Sink as Sink,
)
from ._model import (
    EnvironmentModel as EnvironmentModel,
    evaluate_batch as evaluate_batch,
    Evaluator as Evaluator,
    FeatureEvaluator as FeatureEvaluator,
    ValueCode as ValueCode,
)
from ._mpo import MPO as MPO
from ._phases import draw as draw
from ._policies import (
    Behaviour as Behaviour,
    DistributionActor as DistributionActor,
    Statistics as Statistics,
)
from ._policy_model import PolicyEvaluator as PolicyEvaluator, PolicyModel as PolicyModel
from ._results import Results as Results
from ._run import (
    RunFolder as RunFolder,
    StopSignal as StopSignal,
)
from ._schedules import per_update as per_update
from ._spo import ParticleRecord as ParticleRecord, SPO as SPO
from ._testers import (
    challenge as challenge,
)
from ._value_targets import (
    AbstractValueTarget as AbstractValueTarget,
    NStepReturns as NStepReturns,
    Outcomes as Outcomes,
)


__version__ = importlib.metadata.version("zero-train")
