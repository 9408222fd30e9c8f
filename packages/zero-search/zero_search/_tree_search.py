"""The PUCT family of tree search."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._backup import AbstractBackup, MeanBackup
from ._check import check_count, check_kinds, check_limits, check_range
from ._expand import Rules
from ._model import AbstractPriorModel
from ._noise import AbstractRootNoise, disturb
from ._root import (
    default_room,
    evaluate_root,
    first_carry,
    kept_or_empty,
    next_carry,
    num_actions,
    play_visits,
    SearchCarry,
    tree_stats,
)
from ._sample import Temperature
from ._select import AbstractSelection, PUCT
from ._simulate import search
from ._tree import empty, plant, statistics, Tree
from ._tree_planner import AbstractTreePlanner, Outlook


class TreeSearch(AbstractTreePlanner[AbstractPriorModel]):
    """Monte-Carlo tree search with a prior: AlphaZero, MuZero or UCT by choice of `selection`.

    A simulation walks down by the selection rule to an action without a stored child, evaluates
    what lies behind it and backs up `reward + gamma * discount * value`, so single-player games,
    alternating players and players who move twice are all the same. Final states are revisited,
    not expanded; a truncated state counts with its predicted value. Illegal actions (logit
    `-inf`) are never visited. A row whose root has no legal action is filler: its weights are 0.

    **Full trees.** Once `max_nodes` are stored, new leaves are still evaluated, counted and
    backed up, but not stored. The default makes room for the root and every simulation, with
    reuse for twice as many.

    **Reuse.** With `reuse=True`, `advance` keeps the nodes below the played action with their
    visits and values, provided that the stored state equals the real next state in every leaf.
    So a subtree grown from another chance outcome, or from a guess at something hidden, is
    dropped. `plan` then evaluates the root anew, with fresh noise on the root's own prior;
    all other priors in the tree are without noise. `num_simulations` new visits are added to the
    kept ones. Kept priors and values are those of the model that found them: after an update of
    its network they are a little old, until `last` or a fresh `init`.

    **Depth.** Nothing deeper than `max_depth` moves is expanded; a leaf there is revisited with
    the value it was first given.

    **Several leaves at a time.** With `num_leaves` above 1 every game walks down so many times
    before all these leaves are evaluated in one call of the model, which is what makes a single
    position fast. Until its leaf is evaluated a walk counts on each of its edges as a visit, and
    with `virtual_loss` as so many visits that ended as badly as anything known at that node; a
    loss of 0 marks the number of visits alone. Two walks to the same leaf count once where it is
    newly stored (not in a full tree, nor at `max_depth`), so there may be fewer visits than
    simulations. The same number of simulations is worth a little less than one by one.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    num_simulations: int
    selection: AbstractSelection = PUCT()
    noise: AbstractRootNoise | None = None
    temperature: float | Temperature = 0.0
    gamma: float = 1.0
    max_nodes: int | None = None
    max_depth: int | None = None
    reuse: bool = False
    backup: AbstractBackup = MeanBackup()
    num_leaves: int = 1
    virtual_loss: float = 1.0

    def __check_init__(self):
        heat = self.temperature
        check_kinds("TreeSearch", AbstractSelection, selection=self.selection)
        check_kinds("TreeSearch", AbstractBackup, backup=self.backup)
        if self.noise is not None:
            check_kinds("TreeSearch", AbstractRootNoise, noise=self.noise)
        check_count("TreeSearch", 1, num_simulations=self.num_simulations)
        check_range("TreeSearch", 0, temperature=0.0 if isinstance(heat, Temperature) else heat)
        check_range("TreeSearch", 0, 1, gamma=self.gamma)
        check_limits("TreeSearch", self.max_nodes, self.max_depth)
        check_count("TreeSearch", 1, num_leaves=self.num_leaves)
        check_range("TreeSearch", 0, virtual_loss=self.virtual_loss)
        if self.num_simulations % self.num_leaves:
            raise ValueError(
                f"`TreeSearch(num_simulations={self.num_simulations}, "
                f"num_leaves={self.num_leaves})`: num_simulations must be a multiple of num_leaves."
            )

    def init(self, model: AbstractPriorModel, state: PyTree[Array]) -> SearchCarry:
        """Ply 0, empty trees."""
        tree = self._empty(state, num_actions(model, state)) if self.reuse else None
        return first_carry(state, tree)

    def explore(
        self,
        model: AbstractPriorModel,
        state: PyTree[Array],
        carry: SearchCarry,
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Outlook, SearchCarry, Tree]:
        """Searches from every row of `state`, without a decision."""
        root = evaluate_root(model, state, key)
        logits = root.logits
        noisy = disturb(self.noise, logits, root.noise_key)
        batch, actions = logits.shape
        tree = kept_or_empty(carry, batch, lambda: self._empty(state, actions))
        planted = plant(tree, self.selection, state, noisy, root.value)
        tree, stats = search(
            planted,
            model,
            Rules(
                self.selection,
                self.backup,
                self.gamma,
                self.max_depth,
                num_leaves=self.num_leaves,
                virtual_loss=self.virtual_loss,
            ),
            num_simulations=self.num_simulations,
            key=root.search_key,
        )
        outlook = Outlook(
            root=statistics(tree),
            kept=statistics(planted).visits,
            noise=jnp.zeros_like(logits),
            ply=carry.ply,
            key=root.action_key,
            stats=tree_stats(root, planted, tree, stats),
        )
        return outlook, SearchCarry(ply=carry.ply, tree=tree if self.reuse else None), tree

    def decide(
        self, outlook: Outlook
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """An action by visits, at the temperature.

        The weights are the visits over their sum, before temperature.
        """
        return play_visits(outlook.root.visits, self.temperature, outlook.ply, outlook.key)

    def advance(
        self,
        carry: SearchCarry,
        action: Int[Array, " batch"],
        next_state: PyTree[Array],
        last: Bool[Array, " batch"],
    ) -> SearchCarry:
        """Counts the move and keeps the subtree that still holds."""
        return next_carry(carry, action, next_state, last)

    def _empty(self, state: PyTree[Array], actions: int) -> Tree:
        room = default_room(self.num_simulations, self.max_nodes, self.reuse)
        return empty(state, self.selection, room, actions, planes=2 if self.num_leaves == 1 else 3)
