"""What benchmarks/accelerators reads off compiled programs."""

import importlib.util
import pathlib
import tomllib
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from zero_train import data_mesh


@pytest.fixture(scope="module")
def hlo() -> Any:
    path = pathlib.Path(__file__).parents[1] / "benchmarks" / "accelerators" / "hlo.py"
    spec: Any = importlib.util.spec_from_file_location("accelerators_hlo", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: As compilers for TPUs write: no number of turns beside a loop, places after a shape's layout.
TPU = """\
HloModule jit_step

%summed (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add = f32[] add(%x, %y)
}

%copied (p: f32[512,65]) -> f32[512,65] {
  %p = f32[512,65]{0,1:T(8,128)} parameter(0)
  ROOT %copy.9 = f32[512,65]{1,0:T(8,128)} copy(%p)
}

%in_body (i: (s32[], f32[512,65])) -> (s32[], f32[512,65]) {
  %i = (s32[]{:T(128)}, f32[512,65]{1,0:T(8,128)S(1)}) parameter(0)
  %entry = f32[512,65]{1,0:T(8,128)S(1)} get-tuple-element(%i), index=1
  %fusion.1 = f32[512,65]{1,0:T(8,128)} fusion(%entry), kind=kLoop, calls=%copied
  %start = (f32[512,65]{1,0}, f32[512,65]{1,0}, u32[]) copy-start(%fusion.1)
  %done = f32[512,65]{1,0} copy-done(%start)
  ROOT %t = (s32[]{:T(128)}, f32[512,65]{1,0}) tuple(%entry, %done)
}

%in_cond (i: (s32[], f32[512,65])) -> pred[] {
  %i = (s32[]{:T(128)}, f32[512,65]{1,0}) parameter(0)
  %n = s32[]{:T(128)} get-tuple-element(%i), index=0
  %limit = s32[]{:T(128)} constant(7)
  ROOT %less = pred[]{:T(512)} compare(%n, %limit), direction=LT
}

%out_body (i: (s32[], f32[512,65])) -> (s32[], f32[512,65]) {
  %i = (s32[]{:T(128)}, f32[512,65]{1,0}) parameter(0)
  %inner = (s32[]{:T(128)}, f32[512,65]{1,0}) while(%i), condition=%in_cond, body=%in_body
  %g = f32[512,65]{1,0} get-tuple-element(%inner), index=1
  %sent = (f32[512,65]{1,0}, f32[]) all-reduce(%g, %g), to_apply=%summed
  %call = f32[] custom-call(%g), custom_call_target="xla_python_callback"
  ROOT %t2 = (s32[]{:T(128)}, f32[512,65]{1,0}) tuple(%inner, %g)
}

%out_cond (i: (s32[], f32[512,65])) -> pred[] {
  %i = (s32[]{:T(128)}, f32[512,65]{1,0}) parameter(0)
  ROOT %go_on = pred[] fusion(%i), kind=kLoop, calls=%copied
}

ENTRY %main (p: (s32[], f32[512,65])) -> (s32[], f32[512,65]) {
  %p = (s32[]{:T(128)}, f32[512,65]{1,0}) parameter(0)
  ROOT %outer = (s32[]{:T(128)}, f32[512,65]{1,0}) while(%p), condition=%out_cond, body=%out_body
}
"""


def test_a_program_is_read_loop_by_loop(hlo):
    block = hlo.parse(TPU)
    outer, inner = block.loops()
    assert (outer.turns, outer.condition, outer.kernels()) == (
        None,
        1,
        {"all-reduce": 1, "custom-call": 1},
    )
    assert (inner.turns, inner.kernels()) == (7, {"copy": 1, "copy-start": 1})
    ((sent, times),) = hlo.collectives(block)
    assert (sent.size, times) == (4 * (512 * 65 + 1), 1)
    assert "xla_python_callback" in hlo.host_transfers(block)[0]
    # A prefetch is no copy.
    for least, depth, number in ((0, 1, 1), (0, 2, 1), (0, 3, 0), (10**6, 1, 0)):
        assert len(hlo.copies_in_loops(block, least, depth)) == number
    assert hlo.size_of("(bf16[3,5]{1,0}, pred[7], s4[6], token[])") == 30 + 7 + 3


#: As a TPU gathers a leaf beside other work, and scatters a gradient.
SPLIT = """\
%begun (p: f32[8,4]) -> (f32[8,4], f32[32,4]) {
  %p = f32[8,4]{1,0} parameter(0)
  %all-gather.1 = f32[32,4]{1,0} all-gather(%p), channel_id=11, dimensions={0}
  ROOT %custom-call.1 = (f32[8,4]{1,0}, f32[32,4]{1,0}) custom-call(%p, %all-gather.1)
}

%async_collective_fusion.2 (p: f32[8,4]) -> (f32[9], f32[32,4]) {
  %p = f32[8,4]{1,0} parameter(0)
  %all-gather.2 = f32[32,4]{1,0} all-gather(%p), channel_id=11, dimensions={0}
  ROOT %tuple = (f32[9]{0}, f32[32,4]{1,0}) tuple(%all-gather.2, %all-gather.2)
}

%ended (p: f32[8,4]) -> f32[32,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %all-gather.3 = f32[32,4]{1,0} all-gather(%p), channel_id=11, dimensions={0}
  ROOT %custom-call.2 = f32[32,4]{1,0} custom-call(%p, %all-gather.3)
}

%all-reduce-scatter.4 (g: f32[32,4]) -> f32[8,4] {
  %g = f32[32,4]{1,0} parameter(0)
  %all-reduce = f32[32,4]{1,0} all-reduce(%g), to_apply=%summed
  ROOT %dynamic-slice = f32[8,4]{1,0} dynamic-slice(%all-reduce, %g, %g)
}

ENTRY %main (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %async-collective-start = (f32[8,4]{1,0}, f32[32,4]{1,0}) fusion(%p), kind=kCustom, calls=%begun
  %fusion.1 = (f32[9]{0}, f32[32,4]{1,0}) fusion(%p), kind=kLoop, calls=%async_collective_fusion.2
  %async-collective-done = f32[32,4]{1,0} fusion(%p), kind=kCustom, calls=%ended
  ROOT %fusion.2 = f32[8,4]{1,0} fusion(%async-collective-done), calls=%all-reduce-scatter.4
}
"""


#: The same as a GPU begins and ends it, two leaves at once.
BEGUN = """\
ENTRY %main (p: f32[8,4], q: f32[2]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %q = f32[2]{0} parameter(1)
  %gather = ((f32[8,4], f32[2]), (f32[32,4], f32[8])) all-gather-start(%p, %q), channel_id=1
  %gathered = (f32[32,4], f32[8]) all-gather-done(%gather)
  %g = f32[32,4]{1,0} get-tuple-element(%gathered), index=0
  %h = f32[8]{0} get-tuple-element(%gathered), index=1
  %scatter = ((f32[32,4], f32[8]), (f32[8,4], f32[2])) reduce-scatter-start(%g, %h), channel_id=2
  %scattered = (f32[8,4], f32[2]) reduce-scatter-done(%scatter)
  ROOT %r = f32[8,4]{1,0} get-tuple-element(%scattered), index=0
}
"""


@pytest.mark.parametrize(("text", "size", "ending"), [(SPLIT, 128, ""), (BEGUN, 136, "-start")])
def test_what_is_split_is_counted_once_and_whole(hlo, text, size, ending):
    sent = [(one.op, one.size) for one, _ in hlo.collectives(hlo.parse(text))]
    assert sent == [(f"all-gather{ending}", 4 * size), (f"reduce-scatter{ending}", 4 * size)]


def test_a_compiled_program_is_what_it_says(hlo):
    """On eight devices: an all-reduce in a loop of 5 turns, inside one that ends by itself."""
    mesh = data_mesh(8)

    def local(x):
        turn = lambda _, x: jax.lax.psum(jnp.sin(x), "data") / 8
        return jax.lax.while_loop(
            lambda x: x[0] > 0.5, lambda x: jax.lax.fori_loop(0, 5, turn, x), x
        )

    run = jax.shard_map(local, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    block = hlo.parse(jax.jit(run).lower(jnp.ones(32)).compile().as_text())
    ((sent, times),) = hlo.collectives(block)
    assert (sent.op, sent.size, times) == ("all-reduce", 4 * 4, 5)
    assert {loop.turns for loop in block.loops() if hlo.collectives(loop)} == {None, 5}
    assert hlo.host_transfers(block) == []


def test_the_sums_of_an_update_are_counted(hlo):
    """Three updates of two sums, of which the second waits for the first, and a sum beside them."""
    total = lambda x: jax.lax.psum(x, "data")

    def local(x):
        turn = lambda _, x: jnp.sin(total(jnp.cos(total(x))))
        return jax.lax.fori_loop(0, 3, turn, x), total(jnp.max(x))

    specs = {"in_specs": P("data"), "out_specs": (P("data"), P()), "check_vma": False}
    run = jax.shard_map(local, mesh=data_mesh(8), **specs)
    block = hlo.parse(jax.jit(run).lower(jnp.ones(32)).compile().as_text())
    assert sum(times for _, times in hlo.collectives(block)) == 7
    assert hlo.an_update(block, 3) == 2


def test_the_budget_is_of_what_is_compiled():
    """A misspelt case would hold nothing to its budget."""
    folder = pathlib.Path(__file__).parents[1] / "benchmarks" / "accelerators"
    budget = tomllib.loads((folder / "budget.toml").read_text())
    assert budget["collectives"] == {"an_update": 2, "over_gradient": 1.05}
    source = (folder / "cases.py").read_text()
    assert all(f'"{name}"' in source for name in (*budget["kernels"], *budget["an_update"]))
