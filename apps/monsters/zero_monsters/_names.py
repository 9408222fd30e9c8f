"""The names of planners."""

import dataclasses
import re

from zero_app import UsageError


#: The minimum number of simulations in each tree: with fewer, some actions are not tried.
LEAST_IN_A_TREE = 5


@dataclasses.dataclass(frozen=True)
class PlannerName:
    """The parsed name of a planner.

    `"frozen"` is one determinised tree: it draws one outcome of an action and keeps it.
    `"hindsight-K"` is the mean of K such trees; `"hindsight"` has 3. `"chance"` is a tree with
    chance nodes. Leaves are worth zero or, with `"+playout"` at the end of the name, the return of
    at most 20 random steps.
    """

    kind: str
    trees: int
    playout: bool

    @classmethod
    def parse(cls, text: str) -> "PlannerName":
        """Parses a name; an unknown one raises a `UsageError`."""
        found = re.fullmatch(r"(?:(frozen|chance)|hindsight(?:-([1-9]\d*))?)(\+playout)?", text)
        if found is None:
            raise UsageError(
                f"planner {text!r} is unknown; choose frozen, chance, or hindsight-K with at "
                "least one tree, such as hindsight-8. Append +playout to evaluate leaves by "
                "playouts. The commands eval and watch also accept network."
            )
        kind, trees, playout = found.groups()
        return cls(kind or "hindsight", 1 if kind else int(trees or 3), playout is not None)


def checked(planner: str, simulations: int) -> PlannerName:
    """The parsed name of a planner with so many simulations in all trees together.

    **Raises:** `UsageError` for an unknown name, or fewer than 5 simulations in a tree.
    """
    name = PlannerName.parse(planner)
    if simulations // name.trees < LEAST_IN_A_TREE:
        several = name.trees > 1
        trees = f"the {name.trees} trees" if several else "the tree"
        each = f", {LEAST_IN_A_TREE} in each" if several else ""
        raise UsageError(
            f"{simulations} simulations for {trees} of {planner}: give at least "
            f"{LEAST_IN_A_TREE * name.trees}{each}."
        )
    return name
