"""Models to search over, exact answers for them, and a slow search to compare with."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from mctx._src.seq_halving import get_sequence_of_considered_visits

from zero_search import AbstractPriorModel, AbstractRootNoise, Plan, PUCT, TreeSearch
from zero_search._root import SequentialHalving


# Compiling is what these tests cost, not running: LLVM need not try hard.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Slim(NamedTuple):
    """A pgx Othello state without its observation."""

    player: jax.Array
    board: jax.Array
    passed: jax.Array
    turn: jax.Array
    legal: jax.Array
    terminated: jax.Array


class Othello(AbstractPriorModel[Slim]):
    """pgx Othello with a random linear evaluator."""

    weights: jax.Array
    env: Any
    template: Any
    gamma: float = 1.0

    def root(self, state, obs, *, key):
        del obs, key
        return state

    def step(self, node, action, *, key):
        del key

        def one(node, action):
            x = self.template._x._replace(
                board=node.board.astype(jnp.int32), passed=node.passed, turn=node.turn
            )
            after = self.env.step(
                self.template.replace(
                    current_player=node.player,
                    legal_action_mask=node.legal,
                    terminated=node.terminated,
                    _x=x,
                ),
                action,
            )
            discount = jnp.where(after.terminated, 0.0, -self.gamma)
            return self.slim(after), after.rewards[node.player], discount, after.terminated

        # pgx promotes types freely.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return jax.vmap(one)(node, action)

    def predict(self, node, *, key):
        del key
        out = node.board.astype(jnp.float32) @ self.weights
        return jnp.where(node.legal, out[:, :65], -jnp.inf), jnp.tanh(out[:, 65])

    def slim(self, state) -> Slim:
        return Slim(
            player=state.current_player,
            board=state._x.board.astype(jnp.int8),
            passed=state._x.passed,
            turn=state._x.turn,
            legal=state.legal_action_mask,
            terminated=state.terminated,
        )


def othello_positions(batch: int, seed: int, gamma: float = 1.0) -> tuple[Othello, Slim]:
    """A model and positions after up to 55 random plies."""
    import pgx  # starts the backend

    env = pgx.make("othello")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        template = env.init(jr.key(0))
    weights = 0.2 * jr.normal(jr.key(seed), (64, 66))
    model = Othello(weights=weights, env=env, template=template, gamma=gamma)
    first = jax.tree.map(
        lambda x: jnp.broadcast_to(jnp.asarray(x)[None], (batch, *jnp.shape(x))),
        model.slim(template),
    )
    plies = 2 + jnp.arange(batch) % 54

    def body(i, state):
        keys = jr.split(jr.fold_in(jr.key(seed), i), batch)
        draw = lambda k, legal: jr.categorical(k, jnp.where(legal, 0.0, -jnp.inf))
        action = jax.vmap(draw)(keys, state.legal)
        after, _, _, last = model.step(state, action, key=keys)
        stay = (i >= plies) | last
        pick = lambda x, y: jnp.where(stay.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, state, after)

    return model, quick_jit(lambda s: jax.lax.fori_loop(0, 55, body, s))(first)


class Node(NamedTuple):
    """A state of `RandomTree`."""

    name: jax.Array
    depth: jax.Array
    done: jax.Array


class RandomTree(AbstractPriorModel[Node]):
    """A deterministic tree whose rewards, turns, ends and priors are hashes of the path.

    `gamma` multiplies every discount. Final states stay, with reward 0 and discount `after_end`.

    Its methods are compiled, for tests that call them outside of a compiled function.
    """

    num_actions: int = 6
    discounts: tuple[float, ...] | jax.Array = (1.0, -1.0, -1.0, 0.0)
    truncate: float = 0.0
    illegal: float = 0.3
    horizon: int = 1000
    noise: float = 1.0
    sharpness: float = 3.0
    after_end: float = 0.0
    gamma: float = 1.0

    def root(self, state, obs, *, key):
        del obs, key
        return state

    @eqx.filter_jit
    def start(self, batch: int, seed: int = 0) -> Node:
        """Different first states for every `batch` and `seed`."""
        name = _mix(jnp.arange(batch, dtype=jnp.uint32) + jnp.uint32(1000 * seed + 1))
        return Node(name, jnp.zeros((batch,), jnp.int32), jnp.zeros((batch,), bool))

    @eqx.filter_jit
    def step(self, node, action, *, key):
        del key
        name = _mix(node.name * jnp.uint32(31) + action.astype(jnp.uint32) + jnp.uint32(7))
        reward = jnp.where(_unit(name, 1) < 0.5, 2 * _unit(name, 2) - 1, 0.0)
        which = (_unit(name, 3) * len(self.discounts)).astype(jnp.int32)
        discount = jnp.asarray(self.discounts, jnp.float32)[which]
        depth = node.depth + 1
        discount = jnp.where(depth >= self.horizon, 0.0, discount)
        last = (discount == 0) | (_unit(name, 4) < self.truncate)
        done = node.done
        after = Node(jnp.where(done, node.name, name), depth, done | last)
        reward, discount = jnp.where(done, 0.0, reward), jnp.where(done, self.after_end, discount)
        return after, reward, self.gamma * discount, done | last

    @eqx.filter_jit
    def predict(self, node, *, key):
        del key
        lanes = jnp.arange(self.num_actions, dtype=jnp.uint32)[None] + jnp.uint32(11)
        each = _mix(node.name[:, None] * jnp.uint32(17) + lanes)
        legal = _unit(each, 5) >= self.illegal
        legal = legal.at[:, 0].set(legal[:, 0] | ~jnp.any(legal, axis=1))
        logits = self.sharpness * _unit(each, 6)
        value = self.noise * (2 * _unit(node.name, 7) - 1)
        return jnp.where(legal, logits, -jnp.inf), value


def _mix(x):
    """An integer hash."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> jnp.uint32(shift))) * jnp.uint32(factor)
    return x ^ (x >> jnp.uint32(16))


def _unit(x, salt: int):
    mixed = _mix(x ^ jnp.uint32(0x9E3779B9 * salt % 2**32))
    return (mixed >> jnp.uint32(8)).astype(jnp.float32) / 2**24


class Nim(AbstractPriorModel[jax.Array]):
    """Take 1 to 3; whoever takes the last one wins. The evaluator knows nothing."""

    def root(self, state, obs, *, key):
        del obs, key
        return state

    def step(self, node, action, *, key):
        del key
        left = jnp.maximum(node - action - 1, 0)
        over = left == 0
        return left, jnp.where(over, 1.0, 0.0), jnp.where(over, 0.0, -1.0), over

    def predict(self, node, *, key):
        del key
        legal = jnp.arange(3, dtype=jnp.int32)[None] < node[:, None]
        return jnp.where(legal, 0.0, -jnp.inf), jnp.zeros(node.shape, jnp.float32)


class Jitted:
    """`plan` and `advance` of a planner on a model, compiled once."""

    def __init__(self, planner, model):
        self.planner, self.model, self.traces = planner, model, 0

        def plan(state, carry, key):
            self.traces += 1
            batch = jax.tree.leaves(state)[0].shape[0]
            return planner.plan(model, state, carry, key=jr.split(key, batch))

        self.plan = quick_jit(plan)
        self.fresh_carry = quick_jit(lambda state: planner.init(model, state))
        self.advance = quick_jit(planner.advance)
        self.step = quick_jit(lambda s, a: model.step(s, a, key=jr.split(jr.key(0), a.shape[0])))

    def fresh(self, state, seed: int = 0) -> Plan:
        return self.plan(state, self.fresh_carry(state), jr.key(seed))[0]


def exact_values(model: RandomTree, state: Node, levels: int) -> jax.Array:
    """Optimal Q-values of every root action, `-inf` where illegal; all ends after `levels`, and
    where an episode is cut off the evaluator's value counts.
    """
    batch, n = state.name.shape[0], model.num_actions
    wide = jax.tree.map(lambda x: jnp.repeat(x, n), state)
    actions = jnp.tile(jnp.arange(n, dtype=jnp.int32), batch)
    unused: Any = None  # this model draws nothing
    after, total, discount, last = model.step(wide, actions, key=unused)
    if levels > 1:
        best = jnp.max(exact_values(model, after, levels - 1), axis=1)
        total += discount * jnp.where(last, model.predict(after, key=unused)[1], best)
    legal = jnp.isfinite(model.predict(state, key=unused)[0])
    return jnp.where(legal, total.reshape(batch, n), -jnp.inf)


@functools.cache
def _of_one_row(model):
    """`step` and `predict` of a model, compiled."""
    keys = lambda: jr.split(jr.key(0), 1)
    step = quick_jit(lambda s, a: model.step(s, a, key=keys()))
    return step, quick_jit(lambda s: model.predict(s, key=keys()))


class Reference:
    """A search with one Python object a node: PUCT or Gumbel MuZero's rule inside, either of them
    or sequential halving at the root, no noise. It is the oracle for everything mctx has not.

    `backup` is the planner's, for one node: from its statistics and the outcome to its new value.
    """

    def __init__(
        self,
        planner: TreeSearch,
        model: RandomTree,
        backup: Callable[[dict, float], float] | None = None,
    ):
        self.planner: Any = planner
        self.model = model
        self.max_nodes = planner.max_nodes or (1 + planner.reuse) * planner.num_simulations + 1
        self.max_depth = planner.max_depth or math.inf
        self.backup = backup or self.mean
        self._step, self._predict = _of_one_row(model)

    def node(self, state, final=False) -> dict:
        logits, value = self._predict(state)
        logits = np.asarray(logits[0])
        prior = np.exp(logits - logits.max())
        visits, qvalues = np.zeros(len(prior)), np.zeros(len(prior))
        return dict(
            state=state,
            legal=np.isfinite(logits),
            logits=logits - logits.max(),
            prior=prior / prior.sum(),
            raw=float(value[0]),
            mean=float(value[0]),
            visits=visits,
            q=qvalues,
            children={},
            final=final,
        )

    def size(self, node) -> int:
        return 1 + sum(self.size(c[0]) for c in node["children"].values())

    def select(self, root, node) -> int:
        if node is root and isinstance(self.planner.root, SequentialHalving):
            score = self.halving(node)
        elif isinstance(self.planner.selection, PUCT):
            score = self.puct(node)
        else:
            score = self.improved(node) - node["visits"] / (1 + node["visits"].sum())
        return int(np.argmax(np.where(node["legal"], score, -np.inf)))

    def puct(self, node) -> np.ndarray:
        seen, mean = node["visits"] > 0, node["mean"]
        known = np.where(seen, node["q"], mean)
        low, high = known.min(), known.max()
        low, high = min(low, mean), max(high, mean)
        scaled = (np.where(seen, node["q"], low) - low) / max(high - low, 1e-8)
        count = 1 + node["visits"].sum()
        c = self.planner.selection.c * np.sqrt(count)
        return scaled + c * node["prior"] / (node["visits"] + 1)

    def transformed(self, node, rule) -> np.ndarray:
        seen, visits = node["visits"] > 0, node["visits"]
        average = np.average(node["q"][seen], weights=node["prior"][seen]) if seen.any() else 0.0
        mixed = (node["raw"] + visits.sum() * average) / (1 + visits.sum())
        q = np.where(seen, node["q"], mixed)
        if rule.rescale_values:
            q = (q - q.min()) / max(q.max() - q.min(), 1e-8)
        return (rule.maxvisit_init + visits.max()) * rule.value_scale * q

    def improved(self, node) -> np.ndarray:
        scores = node["logits"] + self.transformed(node, self.planner.selection.qtransform)
        weights = np.exp(scores - scores.max())
        return weights / weights.sum()

    def halving(self, root) -> np.ndarray:
        rule = self.planner.root
        considered = min(int(root["legal"].sum()), rule.max_num_considered_actions)
        schedule = get_sequence_of_considered_visits(considered, self.planner.num_simulations)
        # Only what this move's search added: visits kept from the move before do not count.
        visits = root["visits"] - root["kept"]
        due = schedule[int(visits.sum())] if visits.sum() < len(schedule) else visits.max()
        scores = root["logits"] + self.transformed(root, rule.qtransform)
        return np.where(visits == due, scores, -np.inf)

    def search(self, root: dict) -> dict:
        root["kept"] = root["visits"].copy()
        for _ in range(self.planner.num_simulations):
            self.simulate(root, root, 1)
        return root

    def agrees(self, plan: Plan, state: Node, row: int) -> dict:
        """Searches a row of `state`, and asserts that the plan for it says the same of the root,
        which is returned."""
        plan = jax.tree.map(np.asarray, plan)
        root = self.search(self.node(jax.tree.map(lambda x: np.asarray(x)[row : row + 1], state)))
        assert np.array_equal(plan.visits[row], root["visits"])
        seen = root["visits"] > 0
        assert np.allclose(plan.qvalues[row][seen], root["q"][seen], atol=1e-5)
        assert np.allclose(plan.value[row], root["mean"], atol=1e-5)
        assert int(plan.stats["nodes"][row]) == self.size(root)
        return root

    def mean(self, node, outcome) -> float:
        count = 1 + node["visits"].sum()
        return ((count - 1) * node["mean"] + outcome) / count

    def simulate(self, root, node, depth) -> float:
        action = self.select(root, node)
        whole = True  # whether the child knows of all visits of the edge
        if action in node["children"]:
            child, reward, discount = node["children"][action]
            leaf = child["final"] or depth >= self.max_depth
            outcome = child["raw"] if leaf else self.simulate(root, child, depth + 1)
            mean = child["mean"]
            whole = leaf or child["visits"].sum() == node["visits"][action]
        else:
            after, r, d, last = self._step(node["state"], np.asarray([action], np.int32))
            child = self.node(after, bool(last[0]))
            reward, discount = float(r[0]), float(d[0])
            outcome = mean = child["raw"]
            stored = self.size(root) < self.max_nodes
            whole = stored and node["visits"][action] == 0
            if stored:
                node["children"][action] = (child, reward, discount)
        n, q = node["visits"][action], reward + discount * mean
        up = reward + discount * outcome
        node["q"][action] = q if whole else (n * node["q"][action] + up) / (n + 1)
        node["visits"][action] += 1
        node["mean"] = self.backup(node, up)
        return up


class Noise(AbstractRootNoise):
    """Any change will do; a Dirichlet draw takes long to compile."""

    def __call__(self, logits, *, key):
        return logits + jax.vmap(lambda k: jr.uniform(k, logits.shape[1:], jnp.float32))(key)


def fresh(planner, model, state, key):
    """The plan of a first move, and the trees."""
    plan, _, tree = planner.grow(model, state, planner.init(model, state), key=key)
    return plan, tree


def check_laws(plan: Plan, legal: np.ndarray, done: jax.Array | np.ndarray) -> None:
    """Weights are a distribution over legal actions alone, of which one is played; and rows that
    are done, which are filler, have neither weights nor NaN."""
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
    assert np.allclose(np.sum(plan.weights, axis=1), ~done)
    assert not np.any((plan.weights > 0) & ~legal)
    assert np.all(legal[np.arange(len(legal)), plan.action] | done)


def equal(ours, theirs) -> bool:
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def chi_squared(seen, expected) -> float:
    """One in 10 000 is above 25.8 with 5 degrees of freedom, above 60.2 with 25."""
    return float(np.sum((seen - expected) ** 2 / expected))
