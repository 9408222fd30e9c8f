"""Tree search over some actions of each node, drawn from the policy there."""

from typing import Any, Generic

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._check import batch_size, check_count, check_keys, check_kinds, check_own_carry, plain_numbers
from ._cloud import alike, draw, judge
from ._model import AbstractModel, AbstractPriorModel, stepped
from ._particles import pick
from ._planner import AbstractPlanner, Plan
from ._root import read_out
from ._sample import numbered, split_rows
from ._tree_search import SearchCarry, TreeSearch
from ._types import Bools, Ints, Keys, Node, Prediction, Stepped


class SampledNode(eqx.Module, Generic[Node]):
    """A node and the actions that a search may take there.

    **Attributes:**

    - `node`: of the model that is sampled.
    - `candidates`: actions drawn from its policy; all leaves begin with `[batch, candidates]`.
    - `logits`: the logarithm of the share of the draws that each candidate stands for.
    - `value`: the evaluator's, for the player to move.
    """

    node: Node
    candidates: PyTree[Array]
    logits: Float[Array, "batch candidates"]
    value: Float[Array, " batch"]


class SampledModel(AbstractPriorModel[SampledNode[Node]], Generic[Node]):
    """A model of any actions as one of few: an action is the number of one of `num_candidates`
    draws from the policy of its node, made once when the node is reached.

    The prior of a candidate is how often it was drawn. That is the prior of Sampled MuZero,
    `(hat_beta / beta) * pi`, if the actions are drawn from the policy itself, `beta = pi`. Draws
    that are equal are one candidate: the first of them has the prior of all, the others are
    illegal. A draw that is not finite counts as an `invalid` evaluation.

    **Attributes:**

    - `model`: an [`zero_search.AbstractProposalModel`][], or an
        [`zero_search.AbstractPriorModel`][] with more actions than a tree can hold.
    - `num_candidates`: draws at every node, K in the paper.

    Hubert, Schrittwieser, Antonoglou, Barekatain, Schmitt and Silver 2021, "Learning and planning
    in complex action spaces" (arXiv 2104.06303), sections 4 and 5.
    """

    model: AbstractModel[Node]
    # A shape, so that a jitted function may take the model as an argument.
    num_candidates: int = eqx.field(default=20, static=True)

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_kinds("SampledModel", AbstractModel, model=self.model)
        check_count("SampledModel", 1, num_candidates=self.num_candidates)

    def root(self, state: PyTree[Array], obs: Any, *, key: Keys) -> SampledNode[Node]:
        root_key, draw_key = split_rows(key, 2)
        return self._drawn(self.model.root(state, obs, key=root_key), draw_key)

    def step(
        self, node: SampledNode[Node], action: Ints, *, key: Keys
    ) -> Stepped[SampledNode[Node]]:
        step_key, draw_key = split_rows(key, 2)
        taken = pick(node.candidates, action)
        after, reward, discount, last = stepped(self.model, node.node, taken, step_key)
        return self._drawn(after, draw_key), reward, discount, last

    def predict(self, node: SampledNode[Node], *, key: Keys) -> Prediction:
        del key
        return node.logits, node.value

    def _drawn(self, node: Node, key: Keys) -> SampledNode[Node]:
        judge_key, draw_key = split_rows(key, 2)
        seen = judge(self.model, node, judge_key)
        candidates, invalid = draw(seen.policy, numbered(draw_key, self.num_candidates))
        logits = jnp.where(invalid, jnp.nan, log_shares(candidates))
        return SampledNode(
            node,
            candidates,
            jnp.where(seen.playable[:, None], logits, -jnp.inf),
            # So that the search counts it.
            jnp.where(seen.invalid, jnp.nan, seen.value),
        )


def log_shares(candidates: PyTree[Array]) -> Float[Array, "batch candidates"]:
    """The logarithm of each candidate's share of its row: that of all equal ones at the first of
    them, and `-inf` at the others."""
    same = alike(candidates)
    number = same.shape[1]
    earlier = jnp.tril(jnp.ones((number, number), jnp.bool_), -1)[None]
    repeated = jnp.any(same & earlier, axis=2)
    share = jnp.sum(same, axis=2, dtype=jnp.float32) / number
    return jnp.where(repeated, -jnp.inf, jnp.log(share))


class SampledSearch(AbstractPlanner[AbstractModel, SearchCarry]):
    """Tree search over [`zero_search.SampledModel`][]: at every node `num_candidates` actions are
    drawn from the policy, and only they are searched. So actions may be continuous, have several
    components, or be too many for a tree.

    With the true world it is the search of Sampled AlphaZero, with a learned one that of Sampled
    MuZero. The plan's `candidates` are the actions drawn at the root, and `weights` are those that
    `planner` gives them; of equal ones the first has all. A world that is random is searched for
    the outcomes that were drawn when an action was expanded, as with
    `TreeSearch(outcomes="frozen")`, unless `planner` has `outcomes="drawn"`.

    **Arguments:**

    - `planner`: the search. Noise at its root disturbs the candidates' prior, and not which they
        are. Trees cannot be kept between moves, because other candidates are drawn.
    - `num_candidates`: draws at every node.
    """

    planner: TreeSearch
    num_candidates: int = 20

    def __post_init__(self):
        plain_numbers(self)

    def __check_init__(self):
        check_kinds("SampledSearch", TreeSearch, planner=self.planner)
        check_count("SampledSearch", 1, num_candidates=self.num_candidates)
        if self.planner.reuse:
            raise ValueError(
                "`SampledSearch(planner=TreeSearch(reuse=True))`: every move draws its candidates "
                "anew, so no tree can be kept; leave `reuse` out."
            )
        if self.planner.max_return is not None:
            raise ValueError(
                f"`SampledSearch(planner=TreeSearch(max_return={self.planner.max_return}))`: what "
                "holds for the candidates need not hold for all actions, so nothing is proven; "
                "leave `max_return` out."
            )

    @property
    def num_simulations(self) -> int:
        """Of every plan."""
        return self.planner.num_simulations

    def init(self, model: AbstractModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0."""
        return self.planner.init(SampledModel(model, self.num_candidates), state)

    def plan(
        self,
        model: AbstractModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Keys,
        obs: Any = None,
    ) -> tuple[Plan, SearchCarry]:
        """Searches from every row of `state`. The action of the plan is one of its candidates."""
        check_keys(key, batch_size(state))
        root_key, search_key, read_key = split_rows(key, 3)
        sampled = SampledModel(model, self.num_candidates)
        node = sampled.root(state, obs, key=root_key)
        root, stats, carry, _ = self.planner.explore(sampled, node, carry, key=search_key)
        plan = read_out(self.planner.readout, root, stats, read_key)
        found = pick(node.candidates, plan.action), node.candidates
        return eqx.tree_at(lambda p: (p.action, p.candidates), plan, found), carry

    def advance(self, carry: SearchCarry, action: PyTree[Array], last: Bools) -> SearchCarry:
        """Counts the move."""
        check_own_carry(carry, SearchCarry)
        return SearchCarry(jnp.where(last, 0, carry.ply + 1), None, None)
