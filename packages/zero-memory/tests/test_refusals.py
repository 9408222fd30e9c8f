"""What the buffer refuses, in one line that says what was given and what is allowed."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import EpisodeBuffer, Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer
from zero_memory._checks import check_discount

from .helpers import rows


def _buffer(**changes: Any) -> EpisodeBuffer:
    sizes: dict[str, Any] = {"capacity": 3, "num_envs": 4, "batch_size": 6}
    return EpisodeBuffer(**(sizes | changes))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"capacity": 0}, r"capacity=0: give at least 1"),
        ({"num_envs": 0}, r"num_envs=0: give at least 1"),
        ({"batch_size": -1}, r"batch_size=-1: give at least 1"),
        ({"num_players": 0}, r"num_players=0: give at least 1"),
        ({"num_shards": 0}, r"num_shards=0: give at least 1"),
        ({"num_shards": 3}, r"num_envs=4 does not divide over num_shards=3"),
        ({"num_shards": 4}, r"batch_size=6 does not divide over num_shards=4"),
        ({"batch_size": 13}, r"batch_size=13 .* num_envs=4 of capacity=3: .* at most 12, and less"),
        ({"capacity": 2**29}, r"num_envs=4 with capacity=536870912: give fewer than 2\*\*31 slots"),
    ],
)
def test_sizes(change, message):
    _buffer()
    with pytest.raises(ValueError, match=message):
        _buffer(**change)


def test_capacity_need_not_be_a_multiple_of_the_players():
    assert _buffer(num_players=2).init(rows(0)).outcome.shape == (4, 3)


@pytest.mark.parametrize(
    "axes, message",
    [
        ({"obs": (4, 5, 2)}, r"the items have no reward where .*`reward=lambda item"),
        ({"reward": (4, 5, 1)}, r"the reward of the items has shape \[4, 5, 1\]: give \[4, 5\]"),
    ],
)
def test_rows_without_a_reward(axes, message):
    found = lambda item: jnp.zeros((4, 5), bool)
    buffer = _buffer(last=found, discount=found, reward=lambda item: item["reward"])
    items = {name: jnp.zeros(shape) for name, shape in axes.items()}
    state = buffer.init({name: x[0, 0] for name, x in items.items()})
    with pytest.raises(ValueError, match=message):
        buffer.add(state, items)


def test_items_unlike_the_example():
    buffer = _buffer()
    state = buffer.init(rows(0))
    good = rows(np.zeros((4, 5)))
    with pytest.raises(ValueError, match=r"items of structure .* give items like the example"):
        buffer.add(state, {"reward": good.reward})
    wide = eqx.tree_at(lambda row: row.grid, good, jnp.zeros((4, 5, 2, 1)))
    with pytest.raises(ValueError, match=r"items\.grid is float32\[4, 5, 2, 1\]: give .*2, 3\]"):
        buffer.add(state, wide)
    cast = eqx.tree_at(lambda row: row.name, good, jnp.zeros((4, 5)))
    with pytest.raises(ValueError, match=r"items\.name is float32\[4, 5\]: give int32"):
        buffer.add(state, cast)
    with pytest.raises(ValueError, match=r"items\.name is int32\[1\]: give int32\[4\]"):
        buffer.add_experience(state, rows(np.zeros(1)))
    with pytest.raises(ValueError, match=r"items\.name is int32\[4\]: give 2 axes, environments"):
        buffer.add(state, rows(np.zeros(4)))
    with pytest.raises(ValueError, match=r"items of 0 rows an environment: give at least 1"):
        buffer.add(state, rows(np.zeros((4, 0))))


def test_rows_without_an_end():
    buffer = _buffer(last=lambda item: item.done)
    with pytest.raises(ValueError, match=r"the items have no last where .*`last=lambda item"):
        buffer.add(buffer.init(rows(0)), rows(np.zeros((4, 5))))


@pytest.mark.usefixtures("unhooked")
def test_an_end_that_is_no_truth_value():
    # `~1` is -2, which is true as well: final rows would be stored.
    buffer = _buffer(last=lambda item: item.name)
    with pytest.raises(ValueError, match=r"the last of the items is int32: give bool"):
        buffer.add(buffer.init(rows(0)), rows(np.zeros((4, 5))))


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_rewards_for_others_than_the_players(shape):
    buffer = _buffer()
    with pytest.raises(ValueError, match=r"4 environments and num_players=2: give \[envs"):
        buffer.assign_rewards(buffer.init(rows(0)), jnp.zeros(shape), jnp.ones(4, bool))


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize(
    "mask, given", [(np.ones(1, bool), r"bool\[1\]"), (np.array([2, 1, 0, 2]), r"int\d+\[4\]")]
)
def test_masks_that_are_not_one_truth_value_an_environment(mask, given):
    buffer = _buffer()
    state = buffer.init(rows(0))
    message = rf"mask of {given} for 4 environments: give bool\[4\]"
    with pytest.raises(ValueError, match=message):
        buffer.assign_rewards(state, jnp.zeros((4, 2)), mask)
    with pytest.raises(ValueError, match=message):
        buffer.truncate(state, mask)


WINDOWS: dict[str, Any] = {"capacity": 8, "num_envs": 4, "batch_size": 6, "length": 4}
KINDS = (TrajectoryBuffer, PrioritisedTrajectoryBuffer, Latest)
ALL: list[Any] = [EpisodeBuffer, *KINDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"capacity": 0}, r"capacity=0: give at least 1"),
        ({"length": 0}, r"length=0: give at least 1"),
        ({"period": 0}, r"period=0: give at least 1"),
        ({"length": 9}, r"length=9 with capacity=8: give windows no longer than the ring"),
        ({"num_shards": 3}, r"num_envs=4 does not divide over num_shards=3"),
        ({"num_shards": 4}, r"batch_size=6 does not divide over num_shards=4"),
    ],
)
def test_sizes_of_windows(kind, change, message):
    with pytest.raises(ValueError, match=message):
        kind(**(WINDOWS | change))


@pytest.mark.parametrize(
    "kind, change, message",
    [
        (PrioritisedTrajectoryBuffer, {"period": 3}, r"capacity=8 with period=3: give a multiple"),
        (PrioritisedTrajectoryBuffer, {"alpha": -0.5}, r"alpha=-0\.5: give a number from 0 to 1"),
        (PrioritisedTrajectoryBuffer, {"beta": 1.5}, r"beta=1\.5: give a number from 0 to 1"),
        (Latest, {}, r"capacity=8 with length=4 and period=3 leaves the last 1 rows out"),
        (Latest, {"period": 4}, r"batch_size=6 does not divide the 8 windows of num_envs=4"),
    ],
)
def test_sizes_of_one_kind(kind, change, message):
    with pytest.raises(ValueError, match=message):
        kind(**(WINDOWS | change))


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bad", ["7", 1.5, np.nan, -1, 0, None])
def test_sizes_and_functions_that_are_none(kind: Any, bad: Any):
    sizes: dict[str, Any] = {"capacity": 8, "num_envs": 4, "batch_size": 4, "num_shards": 1}
    sizes |= {"num_players": 2} if kind is EpisodeBuffer else {"length": 4, "period": 4}
    kind(**sizes)
    for name in sizes:
        if (name, bad, kind) != ("period", None, Latest):
            with pytest.raises(ValueError, match=f"{name}={bad!r}"):
                kind(**sizes | {name: bad})
    others: dict[Any, tuple[str, ...]] = {EpisodeBuffer: ("last", "reward", "discount")}
    others[PrioritisedTrajectoryBuffer] = ("alpha", "beta")
    for name in others.get(kind, ()):
        if (name, bad) not in (("alpha", 0), ("beta", 0)):
            with pytest.raises(ValueError, match=f"{name}={bad!r}"):
                kind(**sizes | {name: bad})


@pytest.mark.parametrize("kind", ALL)
def test_the_state_of_another_buffer(kind: Any):
    """Its windows would not be consecutive."""
    sizes: dict[str, Any] = {"capacity": 8, "num_envs": 4, "batch_size": 4}
    sizes |= {} if kind is EpisodeBuffer else {"length": 4, "period": 4}
    state = kind(**sizes).init(rows(0))
    sizes["capacity"] = 12
    other = kind(**sizes)
    calls = [
        lambda: other.add(state, rows(np.zeros((4, 4)))),
        lambda: other.sample(state, key=jr.key(0)),
        lambda: other.ready(state),
    ]
    if kind is EpisodeBuffer:
        calls += [
            lambda: other.add_experience(state, rows(np.zeros(4))),
            lambda: other.assign_rewards(state, jnp.zeros((4, 2)), jnp.ones(4, bool)),
            lambda: other.truncate(state, jnp.ones(4, bool)),
        ]
    for call in calls:
        with pytest.raises(ValueError, match=r"a state of 8 slots .* capacity=12: give a state"):
            call()


def test_a_discount_that_grows():
    buffer = _buffer(capacity=8)
    state, good = buffer.init(rows(0)), rows(np.zeros((4, 3)))
    bad = eqx.tree_at(lambda row: row.discount, good, jnp.full((4, 3), 5.0).at[:, -1].set(0.0))
    with pytest.raises(ValueError, match=r"a discount of 5.0: give numbers from -1 to 1"):
        buffer.add(state, bad)
    outcome = buffer.sample(eqx.filter_jit(buffer.add)(state, bad), key=jr.key(0)).outcome
    assert outcome is not None and np.isnan(outcome).any()


def test_a_discount_of_few_bits_that_has_no_absolute():
    with pytest.raises(ValueError, match=r"a discount of -128: give numbers from -1 to 1"):
        check_discount(jnp.array([0, -128, 1], jnp.int8))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_do_not_fit_a_ring(kind):
    buffer = kind(**(WINDOWS | {"batch_size": 4, "period": 4}))
    state = buffer.init(rows(0))
    with pytest.raises(ValueError, match=r"9 rows an environment with capacity=8: give 1 to"):
        buffer.add(state, rows(np.zeros((4, 9))))
    with pytest.raises(ValueError, match=r"items\.name is int32\[1, 2\]: give int32\[4, 2\]"):
        buffer.add(state, rows(np.zeros((1, 2))))
    with pytest.raises(ValueError, match=r"items\.name is int32\[4\]: give 2 axes, environments"):
        buffer.add(state, rows(np.zeros(4)))
    with pytest.raises(ValueError, match=r"items of structure .* give items like the example"):
        buffer.add(state, {"reward": jnp.zeros((4, 2))})


@pytest.mark.parametrize("kind", KINDS)
def test_items_without_arrays(kind):
    with pytest.raises(ValueError, match=r"an example of {'a': None}: give an item with at least"):
        kind(**(WINDOWS | {"batch_size": 4, "period": 4})).init({"a": None})


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_without_a_window_is_not_sampled(kind):
    buffer = kind(**(WINDOWS | {"batch_size": 4, "period": 4}))
    state = buffer.add(buffer.init(jnp.zeros(())), jnp.zeros((4, 3)))
    for method in [buffer.epoch, buffer.sample] if kind is Latest else [buffer.sample]:
        with pytest.raises(ValueError, match=r"3 rows an environment and windows of length=4"):
            method(state, key=jr.key(0))


def test_a_buffer_without_an_outcome_is_not_sampled():
    buffer = _buffer()
    with pytest.raises(ValueError, match=r"no episode has ended in the 4 environments"):
        buffer.sample(buffer.init(rows(0)), key=jr.key(0))


@pytest.mark.parametrize("copies", [0, 4])
def test_copies_that_a_ring_cannot_hold(copies):
    buffer = _buffer()
    state = buffer.init(rows(0))
    with pytest.raises(ValueError, match=rf"{copies} copies of a move with capacity=3: give 1"):
        buffer.add(state, rows(np.zeros((4, 5, copies))))


@pytest.mark.usefixtures("unhooked")
def test_priorities_that_are_none():
    buffer = PrioritisedTrajectoryBuffer(**WINDOWS)
    state = buffer.init(jnp.zeros(()))
    indices = jnp.zeros((2, 4), jnp.int32)
    for value in (-1.0, jnp.nan, jnp.inf):
        with pytest.raises(ValueError, match=rf"a priority of {value}: give finite numbers"):
            buffer.update_priorities(state, indices, jnp.asarray([1.0, value]))
    with pytest.raises(ValueError, match=r"priorities of shape \[3\] for indices of shape \[2, 4"):
        buffer.update_priorities(state, indices, jnp.ones(3))
    with pytest.raises(ValueError, match=r"priorities of shape \[2\] for indices of shape \[2\]"):
        buffer.update_priorities(state, indices[:, 0], jnp.ones(2))


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("kind", ALL)
def test_states_and_examples_of_another_kind(kind):
    windows = WINDOWS | {"batch_size": 4, "period": 4}
    buffer = EpisodeBuffer(8, 4, 4) if kind is EpisodeBuffer else kind(**windows)
    states = {EpisodeBuffer: "EpisodeState", PrioritisedTrajectoryBuffer: "PrioritisedState"}
    wanted = states.get(kind, "TrajectoryState")
    others = [None, 0, _buffer().init(rows(0)), TrajectoryBuffer(**WINDOWS).init(rows(0))]
    for state in [x for x in others if type(x).__name__ != wanted]:
        message = rf"a state that is of .* give one of {wanted}"
        with pytest.raises(ValueError, match=message):
            buffer.add(state, rows(np.zeros((4, 5))))
        with pytest.raises(ValueError, match=message):
            buffer.sample(state, key=jr.key(0))
        with pytest.raises(ValueError, match=message):
            buffer.ready(state)
    for example in (None, {"a": "x"}, {"a": np.array([None])}):
        with pytest.raises(ValueError, match="example"):
            buffer.init(example)
    with pytest.raises(ValueError, match=r"items\['a'\] is float32\[\]: give"):
        buffer.add(buffer.init({"a": jnp.zeros(())}), {"a": 0.0})


@pytest.mark.usefixtures("unhooked")
def test_arrays_of_numpy_and_lists_will_do():
    buffer: Any = _buffer()
    state = buffer.add_experience(buffer.init(rows(0)), rows(np.zeros(4)))
    ended = [
        buffer.assign_rewards(state, kind([[1.0, 0.0]] * 4), kind([True] * 4)).outcome
        for kind in (jnp.asarray, np.asarray, list)
    ]
    assert (ended[0] == ended[1]).all() and (ended[0] == ended[2]).all() and ended[0].any()
    for wrong in (None, "all"):
        with pytest.raises(ValueError, match="(rewards|mask) is .*: give an array of numbers"):
            buffer.assign_rewards(state, wrong, [True] * 4)
        with pytest.raises(ValueError, match="mask is .*: give an array of numbers"):
            buffer.truncate(state, wrong)
    ordered: Any = PrioritisedTrajectoryBuffer(8, 4, 4, length=4, period=4)
    full = ordered.add(ordered.init(rows(0)), rows(np.zeros((4, 8))))
    indices = ordered.sample(full, key=jr.key(0)).indices
    new = ordered.update_priorities(full, np.asarray(indices), [2.0] * 4).priorities.leaves
    assert new.max() > 1
    for where, what in ((indices, None), (None, [1.0] * 4), (indices.astype(float), [1.0] * 4)):
        with pytest.raises(ValueError, match=r"give an array of numbers|indices of float32"):
            ordered.update_priorities(full, where, what)
    with pytest.raises(ValueError, match="indices of shape"):
        ordered.update_priorities(full, indices[:, :0], [1.0] * 4)
    large: Any = PrioritisedTrajectoryBuffer(128, 4, 4, length=4, period=4)
    full = large.add(large.init(rows(0)), rows(np.zeros((4, 128))))
    few = np.asarray([[124]] * 4, np.int8)  # of 512 slots, which eight bits do not number
    for update in (large.update_priorities, jax.jit(large.update_priorities)):
        new = update(full, few, np.full(4, 2.0, np.float32)).priorities.leaves
        assert (new > 1).sum() == 1 and new.reshape(4, -1)[0].argmax() == 124 // 4


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("number", [1.5, "one", None, [0, 1]])
def test_minibatches_have_whole_numbers(number):
    buffer = Latest(8, 4, 4, length=8, period=1)
    full = buffer.add(buffer.init(rows(0)), rows(np.zeros((4, 8))))
    with pytest.raises(ValueError, match="number is"):
        buffer.minibatch(full, number, key=jr.key(0))


@pytest.mark.usefixtures("unhooked")
def test_sizes_of_numpy_do_not_overflow():
    many: Any = np.int32(65536)
    with pytest.raises(ValueError, match="give fewer than"):
        TrajectoryBuffer(capacity=many, num_envs=many, batch_size=1, length=1)
    eight: Any = np.uint8(8)
    kinds: tuple[tuple[Any, dict[str, Any]], ...] = (
        (TrajectoryBuffer, {"length": 4, "period": 2}),
        (PrioritisedTrajectoryBuffer, {"length": 4, "period": 2}),
        (Latest, {"length": 8}),
        (EpisodeBuffer, {}),
    )
    for kind, more in kinds:
        given: dict[str, Any] = {name: np.uint8(x) for name, x in more.items()}
        found = kind(capacity=eight, num_envs=eight, batch_size=eight, **given)
        assert hash(found) == hash(kind(capacity=8, num_envs=8, batch_size=8, **more))
        assert type(found.capacity) is type(found.batch_size) is int


@pytest.mark.usefixtures("unhooked")
def test_copies_may_be_arrays_of_numpy():
    buffer = _buffer()
    state = buffer.init(rows(0))
    given = rows(np.zeros((4, 5, 2)))
    added = buffer.add(state, jax.tree.map(np.asarray, given))
    for one, other in zip(*map(jax.tree.leaves, (added, buffer.add(state, given))), strict=True):
        np.testing.assert_array_equal(one, other)
