"""Running statistics, against NumPy in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from zero_nets import RunningStatistics


update = jax.jit(RunningStatistics.update)


def _samples(num, *, seed=0):
    """Features whose scales and distances from 0 differ widely."""
    noise = np.random.default_rng(seed).normal(size=(num, 4))
    return (noise * [1.0, 1e-3, 30.0, 1.0] + [0.0, 0.01, 1e5, 1000.0]).astype(np.float32)


def _check(statistics, x, weights=None, *, rtol=1e-5):
    x = np.asarray(x, np.float64)
    mean = np.average(x, axis=0, weights=weights)
    std = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights))
    # What float32 can hold of a mean, and of a deviation that far from 0.
    np.testing.assert_allclose(statistics.mean, mean, rtol=3e-7, atol=1e-5)
    np.testing.assert_allclose(statistics.std, std, rtol=rtol)


@pytest.mark.parametrize("sizes", [(1_000_000,), (10, 999_990), (250_000,) * 4])
def test_a_million_samples(sizes):
    """Sums of squares fail this in float32: at 1000 +- 1 they agree in their first six digits."""
    x = _samples(1_000_000)
    statistics = RunningStatistics.init(jnp.zeros(4))
    for start, size in zip(itertools.accumulate((0, *sizes)), sizes, strict=False):
        statistics = update(statistics, x[start : start + size])
    assert statistics.count == 1_000_000
    _check(statistics, x)


def test_far_from_zero():
    """At 100 000 +- 1, what rounding leaves in the mean of a million is seen in the variance: it is
    off by 8e-5 unless corrected."""
    x = (1e5 + np.random.default_rng(0).normal(size=(1_000_000, 3))).astype(np.float32)
    statistics = update(RunningStatistics.init(jnp.zeros(3)), x)
    np.testing.assert_allclose(statistics.variance, np.var(x, axis=0, dtype=np.float64), rtol=1e-6)


def test_batch_axes_and_scans():
    """However examples are cut into batches and axes, they are the same examples."""
    x = _samples(240)
    statistics = RunningStatistics.init(jnp.zeros(4))
    whole = update(statistics, x.reshape(6, 40, 4))
    parts, _ = jax.lax.scan(
        lambda carry, batch: (carry.update(batch), None), statistics, x.reshape(12, 5, 4, 4)
    )
    single, _ = jax.lax.scan(lambda carry, row: (carry.update(row), None), statistics, x)
    for found in (whole, parts, single):
        assert found.count == 240
        _check(found, x, rtol=5e-5)


def test_eight_devices():
    x = _samples(8 * 500)
    weights = np.random.default_rng(1).integers(0, 3, len(x)).astype(np.float32)
    data = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
    statistics = update(RunningStatistics.init(jnp.zeros(4)), x[:100])
    statistics = jax.device_put(statistics, NamedSharding(data.mesh, P()))
    args = (statistics, *jax.device_put((x, weights), data))
    compiled = update.lower(*args).compile()
    assert "all-reduce" in (compiled.as_text() or "")
    found = compiled(*args)
    assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(found))
    everything = np.concatenate([x[:100], x])
    _check(found, everything, np.concatenate([np.ones(100), weights]))


def test_weights():
    x = _samples(60)
    weights = np.arange(60.0, dtype=np.float32) % 4
    statistics = update(RunningStatistics.init(jnp.zeros(4)), x[:7])
    weighted = update(statistics, x, weights)
    repeated = np.concatenate([x[:7], np.repeat(x, weights.astype(int), axis=0)])
    assert weighted.count == len(repeated)
    _check(weighted, repeated)
    # What has no weight is not looked at.
    garbage = np.where(weights[:, None] > 0, x, np.nan).astype(np.float32)
    jax.tree.map(np.testing.assert_array_equal, update(statistics, garbage, weights), weighted)


@pytest.mark.parametrize("seen", [0, 5])
def test_no_weight_changes_nothing(seen):
    """On a first update this is 0 / 0."""
    statistics = RunningStatistics.init(jnp.zeros(4))
    if seen:
        statistics = update(statistics, _samples(seen))
    for batch, weights in ((_samples(9), jnp.zeros(9)), (jnp.zeros((0, 4)), None)):
        after = update(statistics, batch, weights)
        jax.tree.map(np.testing.assert_array_equal, after, statistics)
    if not seen:
        x = jnp.arange(4.0)
        np.testing.assert_array_equal(statistics.normalise(x), x)


def test_only_what_is_selected():
    rng = np.random.default_rng(0)
    batch = {
        "angles": jnp.asarray(rng.normal(size=(50, 3)), jnp.float32),
        "cell": jnp.arange(50),
        "legal": jnp.ones((50, 2), bool),
        "nothing": None,
        "nested": {"speed": jnp.asarray(rng.normal(5, 2, 50), jnp.bfloat16), "time": jnp.ones(50)},
    }
    row = jax.tree.map(lambda x: x[0], batch)
    everything = RunningStatistics.init(row).update(batch)
    assert everything.mean["cell"] is None and everything.mean["legal"] is None
    assert everything.mean["nested"]["time"] == 1
    spec = {
        "angles": True,
        "cell": True,
        "legal": True,
        "nothing": None,
        "nested": {"speed": True, "time": False},
    }
    statistics = RunningStatistics.init(row, filter_spec=spec).update(batch)
    normalised = statistics.normalise(batch)
    for path in (lambda t: t["cell"], lambda t: t["legal"], lambda t: t["nested"]["time"]):
        assert path(normalised) is path(batch)
    angles = np.asarray(batch["angles"], np.float64)
    np.testing.assert_allclose(
        normalised["angles"], (angles - angles.mean(0)) / angles.std(0), rtol=1e-4, atol=1e-5
    )
    # Half precision is counted in full, and comes back as it was.
    speed = np.asarray(batch["nested"]["speed"], np.float64)
    assert statistics.mean["nested"]["speed"] == pytest.approx(speed.mean(), rel=1e-6)
    assert normalised["nested"]["speed"].dtype == jnp.bfloat16
    np.testing.assert_allclose(
        np.asarray(normalised["nested"]["speed"], np.float64),
        (speed - speed.mean()) / speed.std(),
        rtol=0.02,
        atol=0.02,
    )
    # One example, or a row of a vmap, is normalised like a batch.
    one = jax.vmap(statistics.normalise)(batch)
    np.testing.assert_array_equal(one["angles"], normalised["angles"])

    clipped = statistics.normalise(batch, max_abs=0.25)
    np.testing.assert_array_equal(clipped["angles"], np.clip(normalised["angles"], -0.25, 0.25))
    assert np.max(np.abs(np.asarray(clipped["nested"]["speed"], np.float32))) == 0.25
    # Leaves that are not normalised are not clipped either.
    assert clipped["cell"] is batch["cell"]
    np.testing.assert_array_equal(clipped["nested"]["time"], 1)


def test_what_never_varied_before_is_not_far_from_its_mean():
    rows = jax.nn.one_hot(jnp.arange(64, dtype=jnp.int32) % 15, 16)
    statistics = RunningStatistics.init(rows[0]).update(rows)
    new = jax.nn.one_hot(15, 16)
    assert np.max(statistics.normalise(new)) == 10
    assert np.max(statistics.normalise(new, max_abs=None)) > 1e5


def test_deviations_are_clipped():
    constant = jnp.full((10, 2), 3.0)
    wild = jnp.array([-1e9, 1e9])[:, None] * jnp.ones((1, 2))
    for statistics, low, high in (
        (RunningStatistics.init(constant[0]), 1e-6, 1e6),
        (RunningStatistics.init(constant[0], min_std=0.5, max_std=2.0), 0.5, 2.0),
    ):
        np.testing.assert_allclose(statistics.update(constant).std, low, rtol=1e-6)
        np.testing.assert_allclose(statistics.update(wild).std, high, rtol=1e-6)
        # The clip is of what is shown: what is counted stays exact.
        np.testing.assert_allclose(
            statistics.update(constant).update(wild).variance, np.float32(1e18 / 6), rtol=1e-5
        )


def test_constants_have_no_deviation():
    """Rounding makes their variance a difference of equal squares: below 0 the deviation is NaN."""
    values = np.random.default_rng(0).uniform(-1e3, 1e3, 200).astype(np.float32)
    batch, weights = np.tile(values, (1001, 1)), np.linspace(0.1, 1.7, 1001, dtype=np.float32)
    statistics = update(RunningStatistics.init(jnp.zeros(200)), batch, weights)
    assert jnp.all(statistics.std < 1e-3)


def test_what_does_not_fit_is_refused():
    statistics = RunningStatistics.init({"a": jnp.zeros(3), "b": jnp.zeros(())})
    good = {"a": jnp.zeros((5, 3)), "b": jnp.zeros(5)}
    statistics.update(good)
    with pytest.raises(ValueError, match=r"statistics are of PyTreeDef.*given was"):
        statistics.update({"a": jnp.zeros((5, 3))})
    # Each of these would broadcast.
    for bad, message in (
        ({"a": jnp.zeros((5, 1))}, r"`\['a'\]` is float32\[5, 1\]; expected .* shape \[3\] after"),
        ({"b": jnp.zeros((5, 1))}, r"`\['b'\]` is float32\[5, 1\].* axes, \[5\]"),
        ({"b": jnp.zeros(())}, r"`\['b'\]` is float32\[\]"),
        ({"b": jnp.zeros(5, jnp.int32)}, r"`\['b'\]` is int32\[5\]; expected is floating"),
    ):
        for function in (statistics.update, statistics.normalise):
            with pytest.raises(ValueError, match=message):
                function({**good, **bad})
    with pytest.raises(ValueError, match=r"`weights` has shape \(3,\); the batch's axes are"):
        statistics.update(good, jnp.ones(3))
    with pytest.raises(ValueError, match="no floating-point leaf to follow"):
        RunningStatistics.init({"a": jnp.zeros(3, jnp.int32)})
    with pytest.raises(ValueError, match=r"`min_std` is 2.0 and `max_std` 1.0"):
        RunningStatistics.init(jnp.zeros(3), min_std=2.0, max_std=1.0)


def test_float64(float64):
    x = _samples(1000).astype(np.float64)
    statistics = RunningStatistics.init(jnp.zeros(4)).update(jnp.asarray(x))
    np.testing.assert_allclose(statistics.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.std, x.std(0), rtol=1e-10)
