"""Search in a world that hides something, over what its player knows."""

import jax
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._belief import BeliefModel
from ._chance import ChanceSearch
from ._check import batch_size, check_count, check_keys, check_kinds
from ._model import AbstractPriorModel
from ._root import first_carry, next_carry, SearchCarry
from ._tree import Tree
from ._tree_planner import AbstractTreePlanner, Outlook


class BeliefSearch(AbstractTreePlanner[AbstractPriorModel]):
    """Belief-tree search: plans what to do by what will have been seen.

    Every move starts from `num_particles` states that the player could not tell from the real one,
    drawn by the model's `resample`, and searches the [`zero_search.BeliefModel`][] over them, whose
    docstring says what a belief tree is and what it asks of a model. The state given need not be
    the real one either: any that looks like it does, and gives the same plan if `resample` draws
    the same.

    [`zero_search.Hindsight`][] with `resample` plans for every hidden state apart, as if it were
    known, so it never pays for information. Here the player of the tree knows only its signals. The
    price is memory and steps: a node holds `num_particles` states, twice, and a simulation steps as
    many.

    Whoever can list what is hidden, with probabilities, needs no draws: search the
    [`zero_search.BeliefModel`][] from one's own [`zero_search.Belief`][] by `planner`.

    **Keys.** The first half of `jax.random.split(key)` draws the belief, the second is that of the
    search.

    **Reuse.** A kept subtree belongs to other particles than the next move's: `planner` must not.

    **Arguments:**

    - `planner`: what searches; its decision, `outcomes` (here: signals), noise and gamma hold.
    - `num_particles`: states of a belief. Each costs memory and time in every simulation.
    - `min_particles`: a belief in fewer is not planned beyond but worth what the evaluator says.
    """

    planner: ChanceSearch
    num_particles: int
    min_particles: int = 1

    def __check_init__(self):
        check_kinds("BeliefSearch", ChanceSearch, planner=self.planner)
        check_count("BeliefSearch", 1, num_particles=self.num_particles)
        check_count("BeliefSearch", 1, min_particles=self.min_particles)
        if self.min_particles > self.num_particles:
            raise ValueError(
                f"`BeliefSearch(num_particles={self.num_particles}, "
                f"min_particles={self.min_particles})`: no belief has so many particles; "
                "min_particles must be from 1 to num_particles."
            )
        if self.planner.planner.reuse:
            raise ValueError(
                "`BeliefSearch` got a planner with `reuse=True`: every move draws new particles, "
                "and a kept subtree would belong to the old ones; leave `reuse` out."
            )

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0."""
        self._model(model)
        return first_carry(state)

    def explore(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Outlook, SearchCarry, Tree]:
        """Searches from a belief about every row of `state`, without a decision.

        **Returns:** what is known of the actions; the carry; and trees whose columns are the
        actions, then the signals.
        """
        beliefs = self._model(model)
        check_keys(key, batch_size(state))
        hide, search = jax.vmap(lambda k: tuple(jr.split(k)))(key)
        belief = beliefs.sample(state, self.num_particles, key=hide)
        return self.planner.explore(beliefs, belief, carry, key=search)

    def decide(
        self, outlook: Outlook
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """As `planner` does."""
        return self.planner.decide(outlook)

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move."""
        return next_carry(carry, action, next_state, last)

    def _model(self, model: AbstractPriorModel) -> BeliefModel:
        return BeliefModel(model, self.min_particles)
