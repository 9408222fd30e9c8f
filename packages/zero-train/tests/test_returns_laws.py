"""What multistep returns must satisfy among themselves, and where gradients flow."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from zero_train import returns

from . import windows as w


@pytest.fixture
def double():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def arrays(window):
    """As the functions take them, in the precision that is on."""
    return {
        k: jnp.asarray(x, float if x.dtype == np.float64 else x.dtype) for k, x in window.items()
    }


def everything(x, *, lambda_, stop_gradient):
    """All functions on one window."""
    kept = dict(lambda_=lambda_, stop_gradient=stop_gradient)
    step = x["reward"], x["discount"]
    state = *step, x["value"], x["last"]
    ratio = *step, x["qvalue"], x["value"], x["log_ratio"], x["last"]
    weighed = *step, x["value"], x["log_ratio"], x["last"]
    corrected = *step, x["qvalue"], x["value"], x["coefficient"], x["last"]
    advantages, targets = returns.truncated_gae(*state, **kept)
    gains, traced = returns.vtrace(*weighed, **kept)
    act = x["action"], x["policy"], x["last"]
    return {
        "lambda": returns.lambda_returns(*state, **kept),
        "discounted": returns.discounted_returns(*state, stop_gradient=stop_gradient),
        "n_step": returns.n_step_returns(*state, n=3, **kept),
        "advantages": advantages,
        "targets": targets,
        "off_policy": returns.off_policy_returns(*corrected, stop_gradient=stop_gradient),
        "importance": returns.importance_sampling_returns(*ratio, **kept),
        "retrace": returns.retrace_returns(*ratio, **kept),
        "tree_backup": returns.tree_backup_returns(*step, x["qvalues"], *act, **kept),
        "peng": returns.peng_q_lambda_returns(*step, x["qvalues"], x["last"], **kept),
        "watkins": returns.watkins_q_lambda_returns(*step, x["qvalues"], act[0], act[2], **kept),
        "errors": returns.importance_corrected_td_errors(*weighed, **kept),
        "gains": gains,
        "traced": traced,
    }


@ft.cache
def compiled(lambda_, n=3):
    return jax.jit(jax.vmap(ft.partial(everything, lambda_=lambda_, stop_gradient=True)))


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


def on_policy(window):
    """Behaviour and target policy agree, and an action is worth what its state is."""
    greedy = window["qvalues"].argmax(-1).astype(np.int32)
    policy = np.eye(w.ACTIONS)[greedy]
    best = window["qvalues"].max(-1)
    return window | dict(
        value=best,
        qvalue=best,
        coefficient=np.ones_like(best),
        log_ratio=np.zeros_like(best),
        action=greedy,
        policy=policy,
    )


def test_on_policy_at_lambda_1_all_are_the_discounted_return():
    x = on_policy(w.windows(3))
    found = compiled(1.0)(arrays(x))
    for name in ("lambda", "targets", "off_policy", "importance", "retrace", "tree_backup"):
        close(found[name], found["discounted"])
    for name in ("peng", "watkins", "traced"):
        close(found[name], found["discounted"])
    for name in ("advantages", "errors", "gains"):
        close(found[name], found["discounted"] - x["value"])


def test_on_policy_at_any_lambda_all_are_the_lambda_return():
    x = on_policy(w.windows(4))
    x["coefficient"] *= 0.6
    found = compiled(0.6)(arrays(x))
    for name in ("targets", "off_policy", "importance", "retrace", "tree_backup", "peng"):
        close(found[name], found["lambda"])
    close(found["watkins"], found["lambda"])
    close(found["errors"], found["advantages"])
    close(found["gains"], found["advantages"])
    close(found["traced"], found["lambda"])


def test_at_lambda_0_all_look_one_step_ahead():
    x = w.windows(5)
    x["coefficient"] *= 0
    found = compiled(0.0)(arrays(x))
    ends = np.isnan(x["reward"])[:, :-1]
    step = x["reward"][:, :-1] + x["discount"][:, :-1] * x["value"][:, 1:]
    step = np.where(ends, x["value"][:, :-1], step)
    for name in ("lambda", "n_step", "targets", "off_policy", "importance", "retrace"):
        close(found[name][:, :-1], step)
    rho = np.where(ends, 0, np.exp(x["log_ratio"][:, :-1]))
    close(found["errors"][:, :-1], rho * (step - x["value"][:, :-1]))
    close(found["gains"][:, :-1], np.minimum(1, rho) * (step - x["value"][:, :-1]))


def test_two_players_are_one_who_always_looks_from_the_same_side():
    """A signed discount must be all it takes. Every quantity of the mover's view is turned to the
    view of the window's first mover, where the discounts have no sign."""
    x = w.windows(6)
    signs = np.where(np.nan_to_num(x["discount"], nan=1.0) < 0, -1.0, 1.0)[:, :-1]
    side = np.concatenate([np.ones((len(signs), 1)), np.cumprod(signs, axis=1)], axis=1)
    turned = {k: x[k] * side for k in ("reward", "value", "qvalue")}
    turned["discount"] = np.abs(x["discount"])
    found, seen = (compiled(0.6)(arrays(y)) for y in (x, x | turned))
    names = "lambda", "discounted", "n_step", "advantages", "targets", "off_policy", "importance"
    for name in (*names, "retrace", "errors", "gains", "traced"):
        close(found[name] * side, seen[name])


def test_rows_before_a_final_one_do_not_see_those_behind_it():
    x = w.windows(7, finals=0.0)
    x["last"][:, 5] = True
    for name in w.OF_STEPS:
        x[name][:, 5] = np.nan
    other = {k: np.concatenate([y[:, :6], w.windows(8)[k][:, 6:]], axis=1) for k, y in x.items()}
    found, changed = (compiled(0.9)(arrays(y)) for y in (x, other))
    for name in found:
        np.testing.assert_array_equal(found[name][:, :6], changed[name][:, :6])
        assert not np.allclose(found[name][:, 6:-1], changed[name][:, 6:-1])


def test_a_row_for_the_successor_is_as_good_as_its_value_beside():
    """Windows without their final rows, and the successors' values in arrays of their own."""
    x = w.windows(9)
    advantages = compiled(0.9)(arrays(x))["advantages"]
    one = jax.jit(ft.partial(returns.truncated_gae_from_successors, lambda_=0.9))
    for b in range(len(x["last"])):
        ends = x["last"][b] | (np.arange(w.ROWS) == w.ROWS - 1)
        t = np.flatnonzero(~ends)
        given = arrays({"r": x["reward"][b, t], "d": x["discount"][b, t], "v": x["value"][b, t]})
        following = arrays({"v": x["value"][b, t + 1], "cut": ends[t + 1]})
        if b < 3 and t.size:
            found, targets = one(*given.values(), *following.values())
            close(found, advantages[b, t])
            close(targets, found + given["v"])


def test_a_final_position_without_legal_actions_is_worth_nothing():
    """Its Q-values are all -inf, and 0 * -inf is not a number; nor is a softmax of them."""
    x = w.windows(10)
    x["last"][:, 4] = True
    for name in w.OF_STEPS:
        x[name][:, 4] = np.nan
    x["discount"][:, 3] = np.where(x["last"][:, 3], np.nan, 0.0)
    x["qvalues"][:, 4] = -np.inf
    x["policy"][:, 4] = np.nan
    found = compiled(0.6)(arrays(x))
    for name in ("tree_backup", "peng", "watkins"):
        assert np.isfinite(found[name]).all()
        reached = ~x["last"][:, 3]
        close(found[name][reached, 3], x["reward"][reached, 3])


DIFFERENTIABLE = "reward", "discount", "value", "qvalue", "coefficient", "log_ratio", "policy"


def test_gradients_by_finite_differences(double):
    """Through every function, into everything that goes in, past NaNs in the end rows."""
    x = arrays(w.windows(11, batch=2))
    trace = jnp.nan_to_num(x["trace"])

    @jax.jit
    def total(parts, lambda_):
        one = ft.partial(everything, stop_gradient=False)
        return jax.vmap(lambda y, z: one(y, lambda_=z))({**x, **parts}, lambda_)

    parts = {name: x[name] for name in DIFFERENTIABLE}
    # `check_grads` would take a NaN for equal to a NaN.
    assert all(np.isfinite(y).all() for y in jax.tree.leaves(total(parts, trace)))
    # The table of Q-values has its -inf, which cannot be moved.
    jax.test_util.check_grads(total, (parts, trace), order=1, modes=["rev"], atol=1e-6)


def test_targets_are_constants_unless_asked_for():
    x = {k: v[0] for k, v in arrays(w.windows(12, batch=1)).items()}

    def total(parts, stop_gradient):
        out = everything({**x, **parts}, lambda_=0.9, stop_gradient=stop_gradient)
        # The only ones that are no targets, but the difference from one.
        errors = out.pop("errors")
        return sum(jnp.sum(y) for y in out.values()), jnp.sum(errors)

    parts = {name: x[name] for name in (*DIFFERENTIABLE, "qvalues")}
    gradient = jax.jit(jax.jacrev(total), static_argnums=1)
    stopped, errors = gradient(parts, True)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(stopped))
    ends = np.isnan(x["reward"])
    np.testing.assert_array_equal(errors.pop("value"), np.where(ends, 0, -1))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(errors))
    free, _ = gradient(parts, False)
    assert all(np.any(leaf) and np.isfinite(leaf).all() for leaf in jax.tree.leaves(free))


@pytest.mark.parametrize("rows", (1, w.ROWS))
def test_final_rows_alone_are_their_values(rows):
    """A window of one row, and one of nothing but final rows; values and gradients."""
    x = {k: v[0, -rows:] for k, v in arrays(w.windows(13, batch=1)).items()}
    x |= {k: jnp.full_like(x[k], jnp.nan) for k in w.OF_STEPS if k != "trace"}
    x["last"] = jnp.ones_like(x["last"])

    @jax.jit
    def all_of(parts):
        found = everything({**x, **parts}, lambda_=0.9, stop_gradient=False)
        return sum(jnp.sum(y) for y in found.values()), found

    gradient, found = jax.grad(all_of, has_aux=True)({k: x[k] for k in DIFFERENTIABLE})
    for name in ("lambda", "discounted", "n_step", "targets", "off_policy", "retrace", "traced"):
        assert found[name].tolist() == x["value"].tolist()
    for name in ("advantages", "errors", "gains"):
        assert not np.any(found[name])
    assert np.all(gradient.pop("value") != 0)
    del gradient["policy"]
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_arrays_of_numpy_do(unhooked):
    """Outside of `jit` and `vmap` too, where nothing has made them JAX's."""
    x = {k: v[0] for k, v in arrays(w.windows(17, batch=1)).items()}
    found = everything({k: np.asarray(v) for k, v in x.items()}, lambda_=0.9, stop_gradient=True)
    wanted = everything(x, lambda_=0.9, stop_gradient=True)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_half_precision_becomes_single():
    x = {k: v[0] for k, v in arrays(w.windows(14, batch=1)).items()}
    half = {k: y.astype(jnp.bfloat16) if y.dtype == jnp.float32 else y for k, y in x.items()}
    found = jax.eval_shape(ft.partial(everything, lambda_=0.9, stop_gradient=True), half)
    assert {y.dtype for y in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}


def test_bad_shapes(unhooked):
    x = {k: v[0] for k, v in arrays(w.windows(15, batch=1)).items()}
    whole = arrays(w.windows(15, batch=3))
    state = ft.partial(returns.lambda_returns, x["reward"], x["discount"])
    with pytest.raises(ValueError, match=r"reward\[12\].*value\[11\].*one example.*jax.vmap"):
        state(x["value"][1:], x["last"], lambda_=0.9)
    with pytest.raises(ValueError, match=r"lambda_\[1\] but takes.*lambda_\[rows\]"):
        state(x["value"], x["last"], lambda_=jnp.ones(1))
    batch = [whole[k] for k in ("reward", "discount", "value", "last")]
    with pytest.raises(ValueError, match=r"`truncated_gae` was given reward\[3, 12\]"):
        returns.truncated_gae(*batch, lambda_=0.9)
    empty = [x[k][:0] for k in ("reward", "discount", "value", "last")]
    with pytest.raises(ValueError, match=r"reward\[0\].*not empty"):
        returns.discounted_returns(*empty)
    with pytest.raises(ValueError, match=r"qvalues\[12, 4\], action\[12\], policy\[12, 3\], last"):
        step = x["reward"], x["discount"], x["qvalues"], x["action"]
        returns.tree_backup_returns(*step, x["policy"][:, 1:], x["last"])
    ratio = x["reward"], x["discount"], x["qvalue"], x["value"], x["log_ratio"][1:], x["last"]
    with pytest.raises(
        ValueError, match=r"`retrace_returns` was given reward\[12\].*log_ratio\[11\]"
    ):
        returns.retrace_returns(*ratio, lambda_=0.9)


def test_bad_numbers():
    x = {k: v[0] for k, v in arrays(w.windows(16, batch=1)).items()}
    state = x["reward"], x["discount"], x["value"], x["last"]
    with pytest.raises(ValueError, match=r"n_step_returns\(n=0\)"):
        returns.n_step_returns(*state, n=0)
    with pytest.raises(ValueError, match=r"n_step_returns\(n=.*1 or more"):
        returns.n_step_returns(*state, n=jnp.arange(w.ROWS, dtype=jnp.int32))
    halves: Any = 2.5
    with pytest.raises(ValueError, match=r"n_step_returns\(n=\)` is 2.5; give integers"):
        returns.n_step_returns(*state, n=halves)
    for lambda_ in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=rf"truncated_gae\(lambda_={lambda_}\)`: must be"):
            returns.truncated_gae(*state, lambda_=lambda_)
    with pytest.raises(ValueError, match=r"peng_q_lambda_returns\(lambda_=2.0\)"):
        returns.peng_q_lambda_returns(*state[:2], x["qvalues"], x["last"], lambda_=2.0)
    with pytest.raises(ValueError, match=r"vtrace\(clip_c=-1.0\)"):
        returns.vtrace(*state[:3], x["log_ratio"], x["last"], clip_c=-1.0)
