"""From an environment of any actions and an evaluator to a model that particles plan over."""

from collections.abc import Callable
from typing import Any, Generic

import jax
from jaxtyping import Array, Bool, Float, Key, PyTree

from zero_envs import AbstractEnvironment, Observation
from zero_search import AbstractProposalModel, Proposal

from ._model import check_gamma, discounted, State
from ._policies import masked


#: Judges ONE observation: the policy, and the value `[]` for the player to move.
PolicyEvaluator = Callable[[Observation], tuple[Any, Array]]


class PolicyModel(AbstractProposalModel[State], Generic[State]):
    """The batch-native twin of an environment of continuous or factored actions, with a policy to
    draw them from. For discrete ones use a [`zero_train.EnvironmentModel`][].

    **Attributes:**

    - `env`: an environment that hides nothing.
    - `evaluate`: takes ONE [`zero_envs.Observation`][], returns a policy of one action, such as the
        distributions of zero-nets, and the value `[]` for the player to move. Where actions are
        factored, the policy's `logits` are those of all components' values, as in a
        `zero_nets.MultiDiscrete`; illegal ones are masked here. Give a pytree and new parameters
        do not compile anew.
    - `gamma`: the discount factor, as in [`zero_train.EnvironmentModel`][].
    """

    env: AbstractEnvironment
    evaluate: PolicyEvaluator
    gamma: float = 1.0

    def __check_init__(self):
        if self.env.hidden:
            raise ValueError(
                f"PolicyModel(env={type(self.env).__name__}): its state holds what the player "
                "cannot see, and planners may not see it either; use an environment that hides "
                "nothing."
            )
        check_gamma("PolicyModel", self.gamma)

    def root(self, state: State, obs: Observation | None, *, key: Key[Array, " batch"]) -> State:
        return state

    def step(
        self, node: State, action: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> tuple[State, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        return discounted(jax.vmap(self.env.step)(node, action, key=key), self.gamma)

    def propose(
        self, node: State, *, key: Key[Array, " batch"]
    ) -> tuple[Proposal, Float[Array, " batch"]]:
        def one(state: State) -> tuple[Proposal, Float[Array, ""]]:
            obs = self.env.observe(state)
            policy, value = self.evaluate(obs)
            return masked(policy, obs.legal), value

        return jax.vmap(one)(node)
