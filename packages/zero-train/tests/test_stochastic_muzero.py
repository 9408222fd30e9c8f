"""Stochastic MuZero's loss and gradient against NumPy, plans over a model that is exact, and the
laws that it learns of a coin and of a chain."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from zero_envs import Observation
from zero_memory import Batch
from zero_search import AbstractChanceModel, sampled_step, TreeSearch
from zero_train import bind, data_mesh, Experience, LatentModel, PlanRecord
from zero_train._unroll import code_entropy

from .test_muzero import ACTIONS, agent_of, by_hand, GAMMA, STEPS, windows


CODES = 3


class Linear(eqx.Module):
    """Afterstates, codes and all predictions are linear in what they come from."""

    embed: Array
    act: Array
    move: Array
    heads: Array
    chance: Array
    code: Array
    num_codes: int = eqx.field(static=True, default=CODES)

    def __init__(self, *, key: Array):
        keys = jr.split(key, 6)
        draw = lambda i, *shape: 0.5 * jr.normal(keys[i], shape)
        self.embed = draw(0, 5, 4)
        self.act = draw(1, ACTIONS, 5, 5)
        self.move = draw(2, CODES, 5, 5)
        self.heads = draw(3, ACTIONS + 2, 5)
        self.chance = draw(4, CODES + 1, 5)
        self.code = draw(5, CODES, 8)

    def represent(self, features):
        return self.embed @ features

    def predict(self, hidden):
        out = self.heads[:-1] @ hidden
        return out[:ACTIONS], out[ACTIONS]

    def afterstate(self, hidden, action):
        return self.act[action] @ hidden

    def predict_afterstate(self, afterstate):
        out = self.chance @ afterstate
        return out[:CODES], out[CODES]

    def resolve(self, afterstate, code):
        hidden = jnp.tensordot(code, self.move, axes=1) @ afterstate
        return hidden, self.heads[-1] @ hidden

    def encode(self, features, next_features):
        return self.code @ jnp.concatenate([features, next_features])


@jax.jit
def updated(state: Any, batch: Batch) -> Any:
    return agent_of(network=Linear).update(state, batch, key=jr.key(2))


def test_loss_is_the_formula_and_masks_what_did_not_happen():
    """What happened is told by a loop over the rows; after a true end the codes are those drawn."""
    agent, batch = agent_of(network=Linear), windows(1)
    state = agent.init(key=jr.key(0))
    _, metrics, _ = updated(state, batch)
    learned = jax.tree.map(
        np.asarray, agent.unrolled(batch.items, batch.items.record.value, key=jr.key(2))
    )
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(Linear, state.params))
    rows, total, count, seen = jax.tree.map(np.asarray, batch.items), 0.0, 0.0, set()
    softmax = lambda x: np.exp(x) / np.exp(x).sum()
    used, spread = np.zeros(CODES), np.zeros(CODES)
    for b in np.flatnonzero(~rows.last[:, 0]):
        weight, targets = float(batch.weights[b, 0]), by_hand(rows, b)
        features = rows.obs.features[b].astype(np.float64)
        hidden = net.embed @ features[0]
        for k, target in enumerate(targets):
            out, scale = net.heads @ hidden, 1 / STEPS if k else 1.0
            loss = 0.0
            if target["policy"] is not None:
                loss -= target["policy"] @ np.log(softmax(out[:ACTIONS]))
            if target["value"] is not None:
                loss += 0.7 * 0.5 * (out[ACTIONS] - target["value"]) ** 2
            if k and target["reward"] is not None:
                loss += 1.3 * 0.5 * (out[ACTIONS + 1] - target["reward"]) ** 2
            if k < STEPS:
                after = net.act[learned.action[b, k]] @ hidden
                code = int(learned.chance[b, k] * CODES)
                beside, known = 0.0, targets[k + 1]["reward"] is not None
                if target["policy"] is not None:  # an action was played
                    scores = net.code @ np.concatenate(features[k : k + 2])
                    code = int(scores.argmax())
                    beside -= np.log(softmax((net.chance @ after)[:CODES]))[code]
                    beside += 0.25 * ((np.eye(CODES)[code] - scores) ** 2).sum()
                    used[code] += weight
                    spread += weight * softmax(scores / 0.1)
                if known:
                    beside += 0.7 * 0.5 * ((net.chance @ after)[CODES] - target["value"]) ** 2
                loss += beside / STEPS / scale
                hidden = net.move[code] @ after
                seen.add((known, target["policy"] is not None, rows.last[b, k + 1]))
            total += weight * scale * loss
        count += weight
    # Steps into a final row, after a true end, and after a truncated one.
    assert seen >= {(True, True, True), (True, False, False), (False, False, False)}
    entropy, even = (-x @ np.log(x) for x in (used / used.sum(), spread / spread.sum()))
    assert float(metrics["loss"]) == pytest.approx(total / count - 0.1 * even, rel=1e-4)
    assert float(metrics["code_entropy"]) == pytest.approx(entropy, rel=1e-4)


def test_the_gradient_goes_straight_through_the_arg_max():
    """One step, whose reward alone is learned: the encoder moves as if its scores were the code,
    and by the commitment towards the code."""
    changes: dict[str, Any] = dict(
        network=Linear, num_unroll=1, value_weight=0.0, reward_weight=1.0
    )
    changes |= dict(code_entropy_bonus=0.0)
    batch = windows(2)
    # Policies that equal the targets have no gradient.
    uniform = jnp.full_like(batch.items.record.weights, 1 / ACTIONS)
    batch = eqx.tree_at(lambda b: b.items.record.weights, batch, uniform)
    rows = jax.tree.map(np.asarray, batch.items)
    state = agent_of(**changes).init(key=jr.key(0))
    state = eqx.tree_at(lambda s: s.params.heads, state, replace_fn=lambda x: x.at[:-1].set(0.0))
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(Linear, state.params))
    started = ~rows.last[:, 0]
    weights = np.where(started, np.asarray(batch.weights[:, 0]), 0.0).astype(np.float64)
    wanted, towards = np.zeros((CODES, 8)), np.zeros((CODES, 8))
    for b in np.flatnonzero(started):
        both = np.concatenate(rows.obs.features[b, :2]).astype(np.float64)
        scores = net.code @ both
        code = np.eye(CODES)[scores.argmax()]
        after = net.act[rows.action[b, 0]] @ net.embed @ rows.obs.features[b, 0]
        rewards = net.move @ after @ net.heads[-1]  # of each code
        error = rewards @ code - rows.reward[b, 0]
        wanted += weights[b] * np.outer(error * rewards, both)
        towards += weights[b] * np.outer(2 * (scores - code), both)
    for commitment in (0.0, 0.25):
        agent = agent_of(commitment=commitment, **changes)
        after, _, _ = jax.jit(lambda s, agent=agent: agent.update(s, batch, key=jr.key(2)))(state)
        found = np.asarray(state.params.code - after.params.code) / 0.1
        gradient = (wanted + commitment * towards) / weights.sum()
        np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-3)


def test_an_update_is_the_same_on_eight_devices(sums_in_turn):
    """And waits for the other devices three times: for the number of rows, how often each code was
    taken, and the gradient."""
    mesh, agent = data_mesh(8), agent_of(network=Linear)
    state, batch = agent.init(key=jr.key(0)), windows(3)
    place = lambda spec, tree: jax.device_put(
        tree, jax.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    )
    split = place((mesh.axis_names[0],), batch)
    everywhere = place((), state)
    program = updated.lower(everywhere, split).compile()
    joined = jax.__version_info__ < (0, 8)  # XLA of JAX 0.7 makes one sum of two
    assert sums_in_turn(f"{program.as_text()}") == (2 if joined else 3, 2)
    alone, apart = updated(state, batch), program(everywhere, split)
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_codes_that_are_never_taken_have_finite_gradients(weight):
    """After a softmax in which they are nothing, and where no step counts."""
    spread = lambda scores: code_entropy(jax.nn.softmax(scores / 0.1), jnp.full((1, 2), weight))
    gradient = jax.grad(spread)(jnp.array([[[0.0, 12.0], [0.0, 13.0]]]))
    assert np.isfinite(gradient).all()


PLACES = 7
LAW = 1.5 * jr.normal(jr.key(3), (PLACES * ACTIONS, CODES))
PAYS = jr.normal(jr.key(4), (PLACES * ACTIONS, CODES))
WORTH = jr.normal(jr.key(5), (PLACES * ACTIONS,))
GUESSES = jr.normal(jr.key(6), (PLACES, ACTIONS + 1))


class Ring(AbstractChanceModel[Array, Array]):
    """Seven places in a circle; an action and chance move on together. Afterstates are numbered."""

    num_players: int

    @property
    def num_outcomes(self):
        return CODES

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    def predict(self, node, *, key):
        return GUESSES[node, :ACTIONS], GUESSES[node, ACTIONS]

    def afterstate(self, node, action):
        return node * ACTIONS + action

    def outcome_logits(self, afterstate):
        return LAW[afterstate]

    def afterstate_value(self, afterstate, *, key):
        return WORTH[afterstate]

    def resolve(self, afterstate, outcome):
        node = (afterstate // ACTIONS + afterstate % ACTIONS + outcome + 1) % PLACES
        sign = GAMMA if self.num_players == 1 else -GAMMA
        reward = PAYS[afterstate, outcome]
        return node, reward, jnp.full_like(reward, sign), jnp.zeros(node.shape, bool)


class Tables(eqx.Module):
    """The ring as a network that learned it without a fault: everything is one-hot."""

    num_codes: int = eqx.field(static=True, default=CODES)

    def represent(self, features):
        return features

    def predict(self, hidden):
        out = GUESSES[jnp.argmax(hidden)]
        return out[:ACTIONS], out[ACTIONS]

    def afterstate(self, hidden, action):
        return jnp.kron(hidden, jax.nn.one_hot(action, ACTIONS))

    def predict_afterstate(self, afterstate):
        at = jnp.argmax(afterstate)
        return LAW[at], WORTH[at]

    def resolve(self, afterstate, code):
        at, outcome = jnp.argmax(afterstate), jnp.argmax(code)
        place = at // ACTIONS + at % ACTIONS + outcome + 1
        return jax.nn.one_hot(place % PLACES, PLACES), PAYS[at, outcome]

    def encode(self, features, next_features):
        raise NotImplementedError("plans encode nothing")


@pytest.mark.parametrize("outcomes", ["proportional", "frozen"])
@pytest.mark.parametrize("num_players", [1, 2])
def test_an_exact_model_is_planned_over_as_the_world_is(num_players, outcomes):
    """Visit by visit, with chance nodes or drawn outcomes, and no row depends on its neighbours."""
    latent, planner = (
        LatentModel(Tables(), GAMMA, num_players),
        TreeSearch.muzero(32, outcomes=outcomes),
    )
    state = jnp.arange(14, dtype=jnp.int32) % PLACES
    keys = jr.split(jr.key(9), 14)

    @eqx.filter_jit
    def plan(model, state, keys):
        obs = Observation(jax.nn.one_hot(state, PLACES), jnp.ones((*state.shape, ACTIONS), bool))
        return planner.plan(model, state, planner.init(model, state), key=keys, obs=obs)[0]

    order = np.r_[7:14, 0:7]
    with jax.debug_key_reuse(False):
        world, found = (plan(model, state, keys) for model in (Ring(num_players), latent))
        turned = plan(latent, state[order], keys[order])
    np.testing.assert_array_equal(world.visits, found.visits)
    np.testing.assert_allclose(world.value, found.value, rtol=1e-5)
    np.testing.assert_array_equal(turned.visits, found.visits[order])


class Perceptrons(eqx.Module):
    """One hidden layer for everything. Scores of codes begin so far apart that many codes are used,
    as outcomes that share a code at first tend to keep it."""

    represent: eqx.nn.MLP
    act: eqx.nn.MLP
    move: eqx.nn.MLP
    heads: eqx.nn.MLP
    chance: eqx.nn.MLP
    code: eqx.nn.MLP
    num_codes: int = eqx.field(static=True, default=32)

    def __init__(self, places: int, *, key: Array):
        keys = jr.split(key, 6)
        build = lambda i, inputs, outputs: eqx.nn.MLP(inputs, outputs, 32, 1, key=keys[i])
        self.represent = build(0, places, 16)
        self.act = build(1, 16 + MOVES, 16)
        self.move = build(2, 16 + 32, 17)
        self.heads = build(3, 16, MOVES + 1)
        self.chance = build(4, 16, 33)
        self.code = build(5, 2 * places, 32)

    def predict(self, hidden):
        out = self.heads(hidden)
        return out[:MOVES], out[MOVES]

    def afterstate(self, hidden, action):
        moved = self.act(jnp.concatenate([hidden, jax.nn.one_hot(action, MOVES)]))
        return jnp.tanh(hidden + moved)

    def predict_afterstate(self, afterstate):
        out = self.chance(afterstate)
        return out[:32], out[32]

    def resolve(self, afterstate, code):
        out = self.move(jnp.concatenate([afterstate, code]))
        return jnp.tanh(afterstate + out[1:]), out[0]

    def encode(self, features, next_features):
        return 8 * self.code(jnp.concatenate([features, next_features]))


MOVES, BATCH = 2, 256


class Chain(eqx.Module):
    """Places in a circle. A move leads to one of the next three by a known law, in a circle of two
    back to the same one as well; each place pays another reward."""

    law: Array
    pays: Array

    def __init__(self, places: int):
        draws, law = np.random.default_rng(0), np.zeros((places, MOVES, places))
        for place, action in np.ndindex(places, MOVES):
            lands = (place + 1 + np.arange(min(3, places))) % places
            law[place, action, lands] = draws.dirichlet(np.ones(lands.size))
        self.law = jnp.asarray(law, jnp.float32)
        self.pays = jnp.linspace(-4, 4, places, dtype=jnp.float32)

    @property
    def places(self) -> int:
        return self.pays.size

    def windows(self, key: Array) -> Batch:
        """Four moves at random from places at random."""

        def walk(key):
            def move(place, i):
                akey, ckey = jr.split(jr.fold_in(key, i))
                action = jr.randint(akey, (), 0, MOVES, jnp.int32)
                landed = jr.categorical(ckey, jnp.log(self.law[place, action])).astype(jnp.int32)
                return landed, (place, action, self.pays[landed])

            first = jr.randint(jr.fold_in(key, 4), (), 0, self.places, jnp.int32)
            return jax.lax.scan(move, first, jnp.arange(4, dtype=jnp.int32))[1]

        place, action, reward = jax.vmap(walk)(jr.split(key, BATCH))
        shape = place.shape
        full = lambda x, *more: jnp.full((*shape, *more), x, jnp.float32)
        legal = jnp.ones((*shape, MOVES), bool)
        rows = Experience(
            obs=Observation(jax.nn.one_hot(place, self.places), legal),
            action=action,
            reward=reward,
            discount=full(1),
            last=jnp.zeros(shape, bool),
            record=PlanRecord(full(1 / MOVES, MOVES), full(0)),
        )
        return Batch(rows, full(1), jnp.zeros(shape, jnp.int32))

    def distance(self, net: Any) -> Array:
        """The total variation between the law of a network and the true one: of where a move
        lands, and of where it and the move 0 after it land; the largest of all places and moves."""

        def told(hidden, action):
            after = net.afterstate(hidden, action)
            logits, _ = net.predict_afterstate(after)
            hidden, reward = jax.vmap(lambda code: net.resolve(after, code))(jnp.eye(32))
            nearest = jnp.argmin(jnp.abs(reward[:, None] - self.pays[None]), axis=1)
            return jax.nn.softmax(logits), jax.nn.one_hot(nearest, self.places), hidden

        def both(place, action):
            hidden = net.represent(jax.nn.one_hot(place, self.places))
            probs, lands, hidden = told(hidden, action)
            then, lands_then, _ = jax.vmap(lambda h: told(h, jnp.int32(0)))(hidden)
            second = jnp.einsum("cd,cdy->cy", then, lands_then)
            joint = jnp.einsum("c,cx,cy->xy", probs, lands, second)
            first = self.law[place, action]
            exact = first[:, None] * self.law[:, 0]
            wrong = jnp.abs(probs @ lands - first), jnp.abs(joint - exact)
            return jnp.stack([jnp.sum(x) / 2 for x in wrong])

        every = jnp.arange(self.places, dtype=jnp.int32), jnp.arange(MOVES, dtype=jnp.int32)
        table = jax.vmap(lambda x: jax.vmap(lambda a: both(x, a))(every[1]))(every[0])
        return jnp.max(table, axis=(0, 1))


def distances(places: int, num_updates: int, num_seeds: int) -> np.ndarray:
    """`Chain.distance` of networks from several first parameters, after so many updates."""
    chain = Chain(places)
    agent = agent_of(
        network=lambda *, key: Perceptrons(places, key=key),
        optimiser=optax.adam(optax.cosine_decay_schedule(3e-3, num_updates)),
        num_unroll=2,
        n_steps=1,
    )

    @jax.jit
    @jax.vmap
    def learned(key):
        def body(state, i):
            wkey, ukey = jr.split(jr.fold_in(key, i))
            return agent.update(state, chain.windows(wkey), key=ukey)[0], None

        each = jnp.arange(num_updates, dtype=jnp.int32)
        state, _ = jax.lax.scan(body, agent.init(key=jr.fold_in(key, num_updates)), each)
        return chain.distance(bind(agent.network, state.params))

    with jax.debug_key_reuse(False):
        return np.asarray(learned(jr.split(jr.key(0), num_seeds)))


def test_the_law_of_a_coin_is_learned():
    assert distances(2, 800, 1).max() < 0.05


@pytest.mark.slow
def test_the_law_of_a_chain_is_learned():
    """By each of four networks."""
    one, two = np.max(distances(5, 3000, 4), axis=0)
    assert one < 0.02 and two < 0.04


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="commitment=-1"):
        agent_of(network=Linear, commitment=-1)
