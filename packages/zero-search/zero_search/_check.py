"""What is checked while a search is built or traced: one line says what is wrong."""

import inspect
import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree


def plain_numbers(module: Any) -> None:
    """Makes NumPy's scalars in the fields of a module Python's numbers, whose dtype gives way to
    that of arrays, and which `equinox.filter_jit` does not trace."""
    of_numpy = lambda x: isinstance(x, np.generic)
    for name, value in vars(module).items():
        if any(map(of_numpy, jax.tree.leaves(value))):
            plain = jax.tree.map(lambda x: x.item() if of_numpy(x) else x, value)
            setattr(module, name, plain)


def check_range(owner: str, least: float, most: float = math.inf, /, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is not a finite number in `[least, most]`."""
    allowed = f", {least:g} or more" if least > -math.inf else ""
    allowed = f"finite{allowed}" if most == math.inf else f"from {least:g} to {most:g}"
    _check_numbers(owner, fields, lambda x: least <= x <= most and math.isfinite(x), allowed)


def check_positive(owner: str, /, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is not a finite number above 0."""
    _check_numbers(owner, fields, lambda x: 0 < x < math.inf, "finite and above 0")


def _check_numbers(
    owner: str, fields: dict[str, Any], fits: Callable[[Any], Any], allowed: str
) -> None:
    for name, value in fields.items():
        number = isinstance(value, numbers.Real) or (isinstance(value, Array) and not value.shape)
        traced = isinstance(value, Tracer)  # nobody knows it yet
        # Under a trace a comparison of a known array is traced too.
        known = value.item() if number and isinstance(value, Array) and not traced else value
        if not (number and (traced or fits(known))):
            kind = "" if number else "a number, "
            raise ValueError(f"`{owner}({name}={_given(value)})`: must be {kind}{allowed}.")


def check_count(owner: str, low: int, hint: str = "", /, **fields: int) -> None:
    """Raises where a hyperparameter of `owner` is not an integer of at least `low`."""
    for name, value in fields.items():
        integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not (integer and value >= low):
            raise ValueError(
                f"`{owner}({name}={value!r})`: must be an integer, {low} or more{hint}."
            )


def check_option(owner: str, allowed: tuple[str, ...], /, **fields: str) -> None:
    """Raises where a hyperparameter of `owner` is none of the words allowed."""
    *others, last = (f'"{option}"' for option in allowed)
    for name, value in fields.items():
        if value not in allowed:
            raise ValueError(f"`{owner}({name}={value!r})`: must be {', '.join(others)} or {last}.")


def check_kernels(owner: str, kernels: str) -> None:
    check_option(owner, ("plain", "pallas", "auto"), kernels=kernels)
    if kernels == "pallas" and jax.__version_info__ < (0, 10):
        raise ValueError(
            f"`{owner}(kernels={kernels!r})`: needs jax 0.10 or later, and this is "
            f"{jax.__version__}; leave `kernels` out."
        )


def check_limits(owner: str, **fields: int | None) -> None:
    """Raises where a hyperparameter of `owner` is neither `None` nor an integer of at least 1."""
    known = {name: value for name, value in fields.items() if value is not None}
    check_count(owner, 1, "; leave it out for no limit", **known)


def check_kinds(owner: str, kind: type, /, **parts: Any) -> None:
    """Raises where a replaceable part of `owner` is not an instance of `kind`."""
    for name, part in parts.items():
        if not isinstance(part, kind):
            of = "a subclass of " if inspect.isabstract(kind) else ""
            raise ValueError(
                f"`{owner}({name}={_given(part)})`: must be an instance of {of}"
                f"`zero_search.{kind.__name__}`."
            )


def check_array(
    what: str, x: Any, kind: str, shape: tuple[Any, ...], rows: str, each: str = ""
) -> None:
    """Raises where `x` is no array of this kind and shape, in which `...` is any length."""
    if not (is_kind(x, _KINDS[kind]) and _fits(jnp.shape(x), shape)):
        wanted = f"{kind}[{','.join('n' if n is ... else str(n) for n in shape)}]"
        each = f": {each}" if each else ""
        raise ValueError(f"{what} {shown(x)} for {rows}; it must be {wanted}{each}.")


def check_result(
    part: Any, method: str, result: Any, shape: tuple[Any, ...], each: str, kind: str = "float32"
) -> None:
    """Of a replaceable part, asked about `shape[0]` rows."""
    what = f"`{type(part).__name__}.{method}` returned"
    check_array(what, result, kind, shape, f"{shape[0]} rows", each)


def check_answer(
    method: str, x: Any, kind: str, shape: tuple[Any, ...], rows: str, each: str = ""
) -> None:
    """Of a method of a model, asked about `shape[0]` of what `rows` says."""
    check_array(f"`model.{method}` returned", x, kind, shape, f"{shape[0]} {rows}", each)


def check_own_carry(carry: Any, kind: type) -> None:
    """That a carry is one of a tree search at all."""
    if not isinstance(carry, kind):
        raise ValueError(
            f"`carry` is a `{type(carry).__name__}` and no `{kind.__name__}`: use what this "
            "planner's `init` or `advance` returned."
        )


def check_carry(ply: Array, tree: Any, wanted: Any, batch: int) -> None:
    """That a carry is for `batch` games and its trees, if any, have the shapes `wanted`."""
    hint = "use what this planner's `init` or `advance` returned for these very games"
    if ply.shape != (batch,):
        raise ValueError(f"`carry.ply` is {shown(ply)} for {batch} states: {hint}.")
    if jax.tree.structure(tree) != jax.tree.structure(wanted):
        raise ValueError(f"`carry.tree` holds states of another structure than `state`: {hint}.")
    for path, x, y in _different(tree, wanted):
        raise ValueError(
            f"`carry.tree{path}` is {x} and not {y}, as this search from {batch} states needs it: "
            f"{hint}."
        )


def check_planted(given: tuple[Any, ...], held: tuple[Any, ...]) -> None:
    """The node, prior and value of roots, against what the rows of the trees hold."""
    hint = "make the trees by `Tree.empty` for such nodes and priors"
    for name, new, old in zip(("node", "prior", "value"), given, held, strict=True):
        if jax.tree.structure(new) != jax.tree.structure(old):
            raise ValueError(f"`Tree.plant` got a {name} of another structure: {hint}.")
        for path, x, y in _different(new, old):
            raise ValueError(f"`Tree.plant` got `{name}{path}` {x} for trees of {y}: {hint}.")


def check_leaves(owner: str, num_simulations: int, num_leaves: int) -> None:
    check_count(owner, 1, num_simulations=num_simulations)
    if num_simulations % num_leaves:
        raise ValueError(
            f"`{owner}(num_simulations={num_simulations}, num_leaves={num_leaves})`: "
            "num_simulations must be a multiple of num_leaves."
        )


def check_search(
    num_simulations: int, leaves: int, planes: int, wanted: int, key: Any, batch: int
) -> None:
    """Of `search`, with trees whose `edge` has so many `planes`, of which so many are `wanted`."""
    check_leaves("search", num_simulations, leaves)
    if not callable(key):
        check_keys(key, batch)
    if planes != wanted:
        raise ValueError(
            f"`search` got trees for another number of leaves at a time than `Rules(num_leaves="
            f"{leaves})`, or with bounds where the rules have no `max_return`, or without: make "
            f"them by `Tree.empty(..., num_leaves={leaves}, bounded=...)`."
        )


def check_plan(
    action: Any, value: Any, stats: dict[str, Array], weights: Any, visits: Any, qvalues: Any
) -> None:
    """Of `Plan.over_actions`."""
    shape = jnp.shape(weights)
    if len(shape) != 2:
        raise ValueError(f"`weights` is {shown(weights)}; it must be float32[batch,actions].")
    rows = f"weights of shape {shape}"
    for name, x in (("weights", weights), ("visits", visits), ("qvalues", qvalues)):
        check_array(f"`{name}` is", x, "float", shape, rows)
    check_array("`action` is", action, "int", shape[:1], rows)
    check_array("`value` is", value, "float", shape[:1], rows)
    if "invalid" not in stats:
        raise ValueError(
            f"`stats` has {sorted(stats)} and no 'invalid': give the number of evaluations in each "
            "row that were not finite, as `search` and `masked_prediction` tell them."
        )


def check_move(carry: Any, kind: type, action: Array, last: Array) -> None:
    """What `advance` is told about the games of a carry."""
    check_own_carry(carry, kind)
    batch = carry.ply.shape[0]
    rows = f"a carry of {batch} games"
    check_array("`action` is", action, "int", (batch,), rows)
    check_array("`last` is", last, "bool", (batch,), rows)


def batch_size(state: PyTree[Array]) -> int:
    """The length of the batch axis, which all leaves must share."""
    leaves = [x if hasattr(x, "ndim") else np.asarray(x) for x in jax.tree.leaves(state)]
    # A key's dtype has no kind.
    if any(getattr(x.dtype, "kind", None) in ("O", "S", "U") for x in leaves):
        raise ValueError("`state` has leaves that are no numbers; give arrays, one row a game.")
    if not leaves:
        raise ValueError("`state` has no arrays; give at least one, with one row a game.")
    if any(x.ndim == 0 for x in leaves) or len({x.shape[0] for x in leaves}) > 1:
        shapes = ", ".join(sorted({str(x.shape) for x in leaves}))
        raise ValueError(
            f"`state` has leaves of shapes {shapes}; all must begin with the same batch axis: "
            "give every leaf one row a game."
        )
    if leaves[0].shape[0] == 0:
        raise ValueError("`state` has a batch of 0 games; give at least one.")
    return leaves[0].shape[0]


def check_keys(key: Array, batch: int) -> None:
    typed = hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or key.shape != (batch,):
        raise ValueError(
            f"`key` is {shown(key)} for {batch} states; it must hold one typed key a state, shape "
            f"({batch},): use `jax.random.split(jax.random.key(seed), {batch})`."
        )


def unpacked(method: str, found: Any, names: str) -> Any:
    """What a function of the user returned, if it is as many things as it has `names`."""
    number = len(names.split(", "))
    if not isinstance(found, tuple | list) or len(found) != number:
        kind = type(found).__name__
        given = f"a {kind} of {len(found)}" if isinstance(found, tuple | list) else kind
        raise ValueError(f"`{method}` returned {given}; it must return {number}: `{names}`.")
    return found


def check_prediction(logits: Array, value: Array, batch: int, num_actions: int | None) -> None:
    shape = batch, ... if num_actions is None else num_actions
    what = "`model.predict` returned"
    each = "one row of logits and one scalar value for every state"
    check_array(f"{what} logits", logits, "float", shape, f"{batch} states", each)
    check_array(f"{what} values", value, "float", shape[:1], f"{batch} states", each)


def check_proposal(policy: Any, value: Array, batch: int) -> None:
    """Of `model.propose`."""
    if not all(callable(getattr(policy, name, None)) for name in ("sample", "log_prob")):
        raise ValueError(
            f"`model.propose` returned a `{type(policy).__name__}` for a policy; it must have "
            "`sample(*, key)` and `log_prob(action)`, as the distributions of zero-nets have. "
            "Logits belong to `AbstractPriorModel.predict`."
        )
    what, each = "`model.propose` returned values", "one scalar for every state"
    check_array(what, value, "float", (batch,), f"{batch} states", each)
    for path, x in jax.tree_util.tree_leaves_with_path(policy):
        if isinstance(x, Array) and x.shape[:1] != (batch,):
            raise ValueError(
                f"`model.propose` returned a policy whose leaf `{jax.tree_util.keystr(path)}` is "
                f"{shown(x)} for {batch} states; all must begin with the batch axis: return what "
                "`jax.vmap` of a network gives."
            )


def check_belief(belief: Any, action: Array | None = None) -> tuple[int, int]:
    """Of a `Belief`, and an action to take in it. Returns its numbers of rows and particles."""
    weights, seed = belief.weights, belief.seed
    wide = is_kind(weights, jnp.float32) or is_kind(weights, jnp.float64)
    if not (wide and jnp.ndim(weights) == 2 and all(jnp.shape(weights))):
        raise ValueError(
            f"`belief.weights` is {shown(weights)}; it must be float32[batch,particles], with at "
            "least one game and one particle."
        )
    batch, number = shape = jnp.shape(weights)
    for path, x in jax.tree_util.tree_leaves_with_path(belief.particles):
        if jnp.shape(x)[:2] != shape:
            raise ValueError(
                f"`belief.particles{jax.tree_util.keystr(path)}` is {shown(x)}, but the weights "
                f"are of {batch} games with {number} particles: every leaf must begin with "
                f"({batch}, {number})."
            )
    if not (is_kind(seed, jnp.uint32) and jnp.shape(seed) == (batch,)):
        raise ValueError(
            f"`belief.seed` is {shown(seed)} for {batch} games; it must be uint32 of shape "
            f"({batch},): zeros will do where `step` draws nothing."
        )
    if action is not None:
        check_array("`action` is", action, "int", (batch,), f"beliefs of {batch} games")
    return batch, number


def check_step(state: PyTree[Array], found: tuple[Any, ...], method: str = "step") -> None:
    """Of `model.step(state, ...)`, or another method that returns the same."""
    after, *told = found
    batch = batch_size(state)
    kinds = {"reward": "float", "discount": "float", "last": "bool"}
    for (name, kind), x in zip(kinds.items(), told, strict=True):
        check_array(f"`model.{method}` returned `{name}`", x, kind, (batch,), f"{batch} states")
    old, new = jax.tree.structure(state), jax.tree.structure(after)
    if old != new:
        raise ValueError(
            f"`model.{method}` turned a state of structure {old} into one of {new}; keep the "
            "structure."
        )
    for path, x, y in _different(state, after):
        raise ValueError(
            f"`model.{method}` turned the leaf `state{path}` from {x} into {y}; keep the shape and "
            "dtype of every leaf."
        )


_KINDS = dict(float32=jnp.float32, float=jnp.floating, int=jnp.integer, bool=jnp.bool_)


def _fits(found: tuple[int, ...], shape: tuple[Any, ...]) -> bool:
    pairs = zip(shape, found, strict=False)
    return len(found) == len(shape) and all(n in (..., m) for n, m in pairs)


def _different(tree: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    """The leaves of other shape or dtype in two trees of one structure: path, and both."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(other), strict=True)
    for (path, x), y in pairs:
        if shown(x) != shown(y):
            yield jax.tree_util.keystr(path), shown(x), shown(y)


def _given(value: Any) -> str:
    """What was given, in one line."""
    given = f"{value.__name__}, a class" if isinstance(value, type) else repr(value)
    return f"{type(value).__name__}(...)" if "\n" in given else given


def is_kind(x: Any, kind: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(jnp.result_type(x), kind)


def shown(x: Any) -> str:
    if not isinstance(x, bool | int | float) and not hasattr(x, "dtype"):
        return type(x).__name__
    dtype = getattr(x, "dtype", None) or jnp.result_type(x)
    return f"{dtype}[{','.join(map(str, jnp.shape(x)))}]"
