"""What crosses devices in a step, read in the programs that XLA made of it."""

from collections.abc import Callable

import jax
import jax.random as jr

from zero_train import draw, Loop, LoopState
from zero_train._step import collect_half, learn_half


def check_crossings(loop: Loop, state: LoopState, collectives: Callable[..., set[str]]) -> str:
    """Acting and drawing cross nothing. Otherwise a step only sums, and that is nowhere done in
    collecting but once behind its loops. After a step its two programs are compiled already.

    **Returns:** what is done once in collecting.
    """
    halves = collect_half, learn_half
    collect, learn = (f"{half.lower(loop, None, state).compile().as_text()}" for half in halves)
    loops, once = collect.split("\nENTRY ")
    assert collectives(loops) == set()
    # Also proves that the pattern finds what it looks for.
    assert collectives(once) == collectives(learn) == {"all-reduce"}
    return once


def check_update(
    loop: Loop,
    state: LoopState,
    collectives: Callable[..., set[str]],
    sums_in_turn: Callable[[str], tuple[int, int]],
) -> None:
    """Drawing a batch crosses nothing, and an update waits for the other devices twice: for the
    number of rows that count, with the sum of their values where their deviation needs the mean,
    and then for the gradient with all other metrics. A `state` of shapes will do."""
    drawing = jax.jit(lambda agent, buffer: draw(loop, agent, buffer, key=jr.key(1)))
    program = drawing.lower(state.agent, state.buffer).compile()
    assert collectives(program.as_text()) == set()
    batch = jax.eval_shape(drawing, state.agent, state.buffer)
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    batch = jax.tree.map(place, batch, program.output_shardings)
    update = jax.jit(lambda agent, batch: loop.agent.update(agent, batch, key=jr.key(2)))
    program = update.lower(state.agent, batch).compile()
    assert sums_in_turn(f"{program.as_text()}") == (2, 1)
