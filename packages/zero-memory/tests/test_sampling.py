"""Which entries are drawn, how often, and what is handed out when there are too few."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import EpisodeBuffer

from .helpers import add, init, reader, rows, sample


def test_the_printed_samples(walked):
    """What the worked example prints of the slots that it draws: ply, environment and reward."""
    _, state, read = walked
    table = read(state)
    printed = lambda flat: [(*divmod(table[i][0], 4), table[i][1]) for i in flat]
    assert printed([33, 63, 38, 7, 110, 81, 62, 3, 101, 12]) == [
        *((3, 1, 0.5), (3, 2, 0.0), (8, 1, 0.5), (7, 0, 0.0), (20, 3, 0.0)),
        *((21, 2, 0.0), (2, 2, 1.0), (3, 0, 0.0), (11, 3, 1.0), (12, 0, 0.0)),
    ]
    assert printed([73, 91, 80, 69, 36, 66, 102, 92, 108, 65]) == [
        *((13, 2, 0.0), (1, 3, 0.5), (20, 2, 1.0), (9, 2, 0.0), (6, 1, 0.5)),
        *((6, 2, 1.0), (12, 3, 0.0), (2, 3, 0.5), (18, 3, 0.0), (5, 2, 0.0)),
    ]


def test_a_sample_is_finished_entries_with_their_outcomes(walked):
    buffer, state, read = walked
    table = read(state)
    seen = set()
    for seed in range(60):
        batch = jax.device_get(sample(buffer, state, key=jr.key(seed)))
        assert batch.weights.tolist() == [1.0] * 10
        assert len(set(batch.indices.tolist())) == 10
        entries = zip(batch.items.name.tolist(), batch.outcome.tolist(), strict=True)
        assert [table[i] for i in batch.indices.tolist()] == list(entries)
        seen |= set(batch.indices.tolist())
    assert seen == set(table)


# Ordered draws of 3: 2 populations that are shuffled, and 2 that are drawn from and redrawn.
@pytest.mark.parametrize("population", (3, 5, 6, 8))
def test_every_sequence_of_distinct_ranks_is_equally_likely(ranks, population):
    draws, counted = ranks(population)
    assert counted.all() and draws.min() >= 0 and draws.max() < population
    flat = draws @ np.array([population**2, population, 1])
    _, counts = np.unique(flat, return_counts=True)
    assert len(counts) == population * (population - 1) * (population - 2)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("population", (0, 1, 2))
def test_a_population_too_small_is_drawn_whole_and_repeated(ranks, population):
    draws, counted = ranks(population)
    assert (counted == (np.arange(3) < population)).all()
    for draw in draws[:50].tolist():
        assert sorted(draw[:population]) == list(range(population))
        assert set(draw[population:]) <= set(range(max(population, 1)))


@pytest.fixture(scope="module")
def ranks():
    from zero_memory._distinct import distinct_ranks

    @jax.jit
    def draw(population):
        keys = jr.split(jr.key(0), 20_000)
        return jax.vmap(lambda key: distinct_ranks(population, 3, key=key))(keys)

    return lambda population: jax.device_get(draw(jnp.asarray(population, jnp.int32)))


LONGEST = 21


def _filled(buffer, *plan):
    """A state in which each environment has ended episodes of these lengths, and then one runs."""
    streams = []
    for *ended, running in plan:
        stream = [(-1.0, False)] * running
        for length in reversed(ended):
            stream = [(-1.0, False)] * (length - 1) + [(0.0, False)] + stream
        streams.append(stream)
    # Final rows are not stored, so they can fill up the front: one length, one compilation.
    padded = np.array([[(0.0, True)] * (LONGEST - len(s)) + s for s in streams])
    discount, last = padded[..., 0], padded[..., 1]
    names = np.arange(last.size).reshape(last.shape)
    return add(buffer, init(buffer, rows(-1)), rows(names, 1.0, discount, last))


def test_entries_of_uneven_rings_are_equally_likely():
    buffer = EpisodeBuffer(capacity=10, num_envs=4, batch_size=4)
    state = _filled(buffer, (8, 6, 7), (5, 10), (4, 9, 1), (1, 0))
    table = reader(buffer)(state)
    assert np.bincount(np.array(list(table)) // 10, minlength=4).tolist() == [3, 0, 9, 1]
    draws = jax.jit(jax.vmap(lambda key: buffer.sample(state, key=key).indices))
    drawn, counts = np.unique(draws(jr.split(jr.key(1), 5000)), return_counts=True)
    assert drawn.tolist() == sorted(table)
    # Draws without replacement repel each other: the statistic shrinks by (13 - 4) / (13 - 1).
    statistic = scipy.stats.chisquare(counts).statistic * 12 / 9
    assert scipy.stats.chi2.sf(statistic, df=12) > 1e-3


@pytest.fixture(scope="module")
def sharded():
    return EpisodeBuffer(capacity=5, num_envs=4, batch_size=8, num_shards=2)


def test_too_few_entries_are_handed_out_once_and_repeats_weigh_nothing(sharded):
    # 3 and 5 finished entries, for 4 draws each.
    state = _filled(sharded, (2, 1), (1, 0), (2, 2, 0), (1, 3))
    table = reader(sharded)(state)
    batch = sample(sharded, state, key=jr.key(0))
    assert batch.weights.tolist() == [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    indices, names = batch.indices.tolist(), batch.items.name.tolist()
    assert set(indices[:3]) == {i for i in table if i < 10}
    assert indices[3] in indices[:3] and len(set(indices[4:])) == 4
    outcomes = batch.outcome.tolist()
    assert [table[i] for i in indices] == list(zip(names, outcomes, strict=True))
    assert not sharded.ready(state)


def test_with_nothing_finished_every_weight_is_0_and_no_item_is_made_up(sharded):
    for state in (init(sharded, rows(-1)), _filled(sharded, (3,), (9,), (0,), (1,))):
        batch = jax.device_get(sample(sharded, state, key=jr.key(0)))
        assert batch.weights.tolist() == [0.0] * 8
        assert not sharded.ready(state)
        assert np.isfinite(batch.outcome).all()
        # An item of zeros could be a position without a legal move, and a loss of 0 * nan.
        example = rows(batch.items.name)
        np.testing.assert_array_equal(batch.items.grid, example.grid)


def test_ready_when_every_shard_can_fill_its_part(sharded):
    assert not sharded.ready(_filled(sharded, (5, 0), (5, 0), (3, 1), (0,)))
    assert sharded.ready(_filled(sharded, (1, 0), (3, 1), (4, 0), (0,)))
