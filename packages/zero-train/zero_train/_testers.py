"""The best so far, defended in matches."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from zero_envs import AbstractEnvironment

from ._actor import AbstractActor
from ._faults import check_faults
from ._match import match, MatchResult


Actor = TypeVar("Actor", bound=AbstractActor)


def challenge(
    env: AbstractEnvironment,
    challenger: Actor,
    best: Actor,
    *,
    num_games: int,
    max_steps: int,
    key: PRNGKeyArray,
    opening_plies: int = 0,
) -> tuple[Actor, MatchResult]:
    """Lets a challenger play the best so far, whom it replaces if its mean outcome is above 0.

    Thread the returned best through the calls, starting with the first parameters. (A tester
    against a fixed baseline is [`zero_train.match`][] itself.)

    **Arguments:** those of [`zero_train.match`][]; `challenger` and `best` must differ in their
    arrays only.

    **Returns:** the new best, and the match from the challenger's view.

    **Raises:** `ValueError` as [`zero_train.match`][] does. Under `jax.jit` the best stays where
    something was wrong with a game.
    """
    chosen, result = _challenge(env, challenger, best, num_games, max_steps, key, opening_plies)
    check_faults("challenge", result.fault, "games")
    return chosen, result


@eqx.filter_jit
def _challenge(
    env: AbstractEnvironment,
    challenger: Actor,
    best: Actor,
    num_games: int,
    max_steps: int,
    key: PRNGKeyArray,
    opening_plies: int,
) -> tuple[Actor, MatchResult]:
    new, new_static = eqx.partition(challenger, eqx.is_array)
    old, old_static = eqx.partition(best, eqx.is_array)
    if not eqx.tree_equal(new_static, old_static):
        raise ValueError(
            "challenge(challenger, best): the two differ in more than the values of their arrays, "
            "so neither can take the other's place; build both in the same way, or use match"
        )
    result = match(
        env,
        challenger,
        best,
        num_games=num_games,
        max_steps=max_steps,
        key=key,
        opening_plies=opening_plies,
    )
    better = jnp.mean(result.outcomes) > 0
    chosen = jax.tree.map(lambda x, y: jnp.where(better, x, y), new, old)
    return eqx.combine(chosen, old_static), result
