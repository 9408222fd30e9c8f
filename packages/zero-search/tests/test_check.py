"""Bad input is refused by one line that names it."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractBackup,
    AbstractPriorModel,
    AbstractQTransform,
    AbstractReadout,
    AbstractRootNoise,
    AbstractRootRule,
    AbstractSelection,
    ByMinMax,
    ByParentAndSiblings,
    CompletedByMixedValue,
    DirichletNoise,
    Hindsight,
    masked_prediction,
    PlainQ,
    Plan,
    PriorRoot,
    PUCT,
    Rules,
    safe_softmax,
    search,
    SoftmaxQ,
    Temperature,
    Tree,
    TreeSearch,
    UCB1,
    VisitCounts,
)
from zero_search._forest import Forest
from zero_search._root import ImprovedPolicy, SequentialHalving
from zero_search._tree_search import SearchCarry

from .helpers import Nim, Node, RandomTree


PLANNERS = [TreeSearch(4), TreeSearch.gumbel(4), TreeSearch(4, num_leaves=2, reuse=True)]
TREE = RandomTree()


class Bad(AbstractPriorModel[Any]):
    """A tree with one thing wrong in what it returns."""

    wrong: str

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key) -> Any:
        after, reward, discount, last = TREE.step(node, action, key=key)
        if self.wrong == "three":
            return after, reward, discount
        if self.wrong == "reward":
            reward = reward[:, None]
        if self.wrong == "discount":
            discount = discount.astype(jnp.int32)
        if self.wrong == "last":
            last = last.astype(jnp.int32)
        if self.wrong == "structure":
            return tuple(after), reward, discount, last
        if self.wrong == "leaf":
            after = after._replace(depth=after.depth.astype(jnp.float32))
        return after, reward, discount, last

    def predict(self, node, *, key) -> Any:
        logits, value = TREE.predict(Node(*node), key=key)
        if self.wrong == "nothing":
            return None
        if self.wrong == "value":
            value = value[:, None]
        if self.wrong == "logits":
            logits = logits.astype(jnp.int32)
        return logits, value


def trace(planner, model, state, num_keys: int):
    """Plans without running anything."""

    def run(state):
        keys = jr.split(jr.key(0), num_keys)
        return planner.plan(model, state, planner.init(model, state), key=keys)

    return jax.eval_shape(run, state)


@pytest.mark.parametrize("planner", [TreeSearch(4, reuse=True), TreeSearch.gumbel(4)])
@pytest.mark.parametrize(
    "wrong, message",
    [
        ("value", r"values float32\[3,1\] for 3 states; it must be float\[3\]: one row of"),
        ("three", "`model.step` returned a tuple of 3; it must return 4: `next_node, reward, disc"),
        ("nothing", "`model.predict` returned NoneType; it must return 2: `logits, value`"),
        ("logits", r"returned logits int32\[3,6\]"),
        ("reward", r"`reward` float32\[3,1\] for 3 states; it must be float\[3\]"),
        ("discount", r"`discount` int32\[3\] for 3 states; it must be float"),
        ("last", r"`last` int32\[3\] for 3 states; it must be bool"),
        ("structure", r"keep the structure"),
        ("leaf", r"the leaf `state\.depth` from int32\[3\] into float32\[3\]"),
    ],
)
def test_wrong_results_of_a_model_are_named(planner, wrong, message):
    # Under the import hook's eyes too: a user's own model is not annotated.
    with pytest.raises(ValueError, match=message) as error:
        trace(planner, Bad(wrong), TREE.start(3), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("planner", PLANNERS)
def test_wrong_rows_are_named(planner):
    state = TREE.start(3)
    with pytest.raises(ValueError, match=r"`key` is key<fry>\[2\] for 3 states"):
        trace(planner, TREE, state, 2)
    scalar = state._replace(depth=jnp.zeros((), jnp.int32))
    with pytest.raises(ValueError, match=r"leaves of shapes \(\), \(3,\)"):
        trace(planner, TREE, scalar, 3)


@pytest.mark.parametrize("planner", PLANNERS)
def test_keys_must_be_typed_and_one_a_row(planner, unhooked):
    state = TREE.start(3)
    carry = planner.init(TREE, state)
    with pytest.raises(ValueError, match=r"`key` is key<fry>\[\] for 3 states"):
        planner.plan(TREE, state, carry, key=jr.key(0))
    with pytest.raises(ValueError, match=r"uint32\[3,2\] for 3 states.*one typed key a state"):
        planner.plan(TREE, state, carry, key=jr.split(jr.PRNGKey(0), 3))


@pytest.mark.parametrize("planner", [TreeSearch(4), TreeSearch.gumbel(4, reuse=True)])
def test_a_state_without_arrays_is_named(planner, unhooked):
    with pytest.raises(ValueError, match="`state` has no arrays; give at least one"):
        planner.init(TREE, ())


def test_a_node_may_hold_keys():
    class Drawn(AbstractPriorModel[Any]):
        """Nim whose nodes carry a key."""

        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            left, reward, discount, last = Nim().step(node["left"], action, key=key)
            return node | {"left": left}, reward, discount, last

        def predict(self, node, *, key):
            return Nim().predict(node["left"], key=key)

    state = {"left": jnp.array([3, 5]), "key": jr.split(jr.key(1), 2)}
    keys, planner = jr.split(jr.key(0), 2), TreeSearch(4)
    plan = lambda s, k: planner.plan(Drawn(), s, planner.init(Drawn(), s), key=k)[0].weights
    with jax.debug_key_reuse(False):  # the tree keeps the keys and nodes are given them again
        assert jax.eval_shape(plan, state, keys).shape == (2, 3)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_batch_without_games_is_named(planner):
    with pytest.raises(ValueError, match="`state` has a batch of 0 games; give at least one"):
        planner.init(TREE, jax.tree.map(lambda x: x[:0], TREE.start(1)))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: TreeSearch(0), "num_simulations=0"),
        (lambda: TreeSearch(4, max_nodes=0), "max_nodes=0"),
        (lambda: VisitCounts(-1.0), r"VisitCounts\(temperature=-1.0\)"),
        (lambda: TreeSearch.alphazero(4, temperature=-1.0), "temperature=-1.0"),
        (lambda: SoftmaxQ(-1.0), r"SoftmaxQ\(temperature=-1.0\)"),
        (lambda: TreeSearch.gumbel(-1), "num_simulations=-1"),
        (lambda: TreeSearch.gumbel(4, max_nodes=0), "max_nodes=0"),
        (lambda: SequentialHalving(0), "considered_actions=0"),
        (lambda: SequentialHalving(gumbel_scale=-1.0), "gumbel_scale=-1.0"),
        (lambda: TreeSearch(4, max_depth=0), r"TreeSearch\(max_depth=0\)`: must be an integer"),
        (lambda: TreeSearch.uct(4, max_depth=0), r"TreeSearch\(max_depth=0\)`: must be an integer"),
        (lambda: TreeSearch(4, outcomes="mean"), "outcomes='mean'.*must be .proportional"),
        (lambda: TreeSearch(6, num_leaves=4), "must be a multiple of num_leaves"),
        (lambda: TreeSearch(4, virtual_loss=-1.0), "virtual_loss=-1.0"),
        (lambda: ByMinMax(1.0, 1.0), r"low=1.0, high=1.0\)`: low must be below high"),
        (lambda: ByMinMax(float("nan"), 1.0), r"ByMinMax\(low=nan\)`: must be finite"),
        (lambda: ByParentAndSiblings(epsilon=-1.0), "epsilon=-1.0"),
        (lambda: CompletedByMixedValue(value_scale=-1.0), "value_scale=-1.0"),
        (lambda: PUCT(-1.0), r"PUCT\(c=-1.0\)"),
        (lambda: PUCT(c_base=0.0), "c_base=0.0"),
        (lambda: PUCT(prior_temperature=0.0), "prior_temperature=0.0"),
        (lambda: PUCT(bound="linear"), r"""bound='linear'\)`: must be "sqrt" or "log"."""),
        (lambda: TreeSearch.muzero(4, c_base=-1.0), "c_base=-1.0"),
        (lambda: UCB1(-0.5), "c=-0.5"),
        (lambda: DirichletNoise(fraction=1.5), "fraction=1.5"),
        (lambda: DirichletNoise(alpha=0.0), "alpha=0.0"),
        (lambda: DirichletNoise(total=-1.0), "total=-1.0"),
        (lambda: DirichletNoise(alpha=math.inf), "alpha=inf"),
        (lambda: DirichletNoise(total=math.nan), "total=nan"),
        (lambda: Temperature(moves=-1), "moves=-1"),
        (lambda: Temperature(math.inf), "first=inf"),
        (lambda: VisitCounts(math.inf), r"temperature=inf\)`: must be finite, 0 or"),
        (lambda: TreeSearch(4, virtual_loss=math.inf), "virtual_loss=inf"),
        (lambda: TreeSearch.gumbel(4, gumbel_scale=math.inf), "gumbel_scale=inf"),
        (lambda: ByMinMax(0.0, math.inf), "high=inf"),
        (lambda: TreeSearch(4, outcomes="frozen", evaluate_outcomes=True), "no afterstates"),
        (lambda: Rules(PUCT(), num_leaves=0), r"`Rules\(num_leaves=0\)`: must be an integer"),
    ],
)
def test_bad_hyperparameters_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("build", [TreeSearch, TreeSearch.gumbel])
@pytest.mark.parametrize("number", [16.0, True, "16"])
def test_what_is_no_integer_is_named(build, number, unhooked):
    message = rf"`TreeSearch\(num_simulations={number!r}\)`: must be an integer, 1 or more"
    with pytest.raises(ValueError, match=message):
        build(number)


@pytest.mark.parametrize("given, shown", [(PlainQ(), "PlainQ()"), ("1", "'1'"), (None, "None")])
def test_what_is_no_number_is_named(given, shown, unhooked):
    wrong: Any = "0" if given is None else given
    builds: list[tuple[Any, str]] = [
        (PUCT, "PUCT(c"),
        (PlainQ, "PlainQ(unvisited"),
        (lambda _: UCB1(epsilon=wrong), "UCB1(epsilon"),
        (lambda _: DirichletNoise(alpha=wrong), "DirichletNoise(alpha"),
        (VisitCounts, "VisitCounts(temperature"),
    ]
    for build, field in builds:
        with pytest.raises(ValueError, match="must be a number, finite") as error:
            build(given)
        assert str(error.value).startswith(f"`{field}=")
        assert given is None or shown in str(error.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: TreeSearch.alphazero(2, c=x),
        lambda x: TreeSearch(2, root=PriorRoot(DirichletNoise(alpha=x))),
        lambda x: TreeSearch(2, readout=VisitCounts(x)),
        lambda x: TreeSearch(2, num_leaves=2, virtual_loss=x),
    ],
    ids=["c", "alpha", "temperature", "virtual_loss"],
)
def test_numbers_may_be_traced(build, unhooked):
    def plan(x):
        planner, state = build(x), TREE.start(2)
        keys = jr.split(jr.key(0), 2)
        return planner.plan(TREE, state, planner.init(TREE, state), key=keys)[0]

    assert jax.eval_shape(plan, jnp.float32(0.5)).action.shape == (2,)


def test_a_temperature_that_is_no_scalar_is_named(unhooked):
    heat: Any = jnp.ones(3)
    for readout in (SoftmaxQ, VisitCounts):
        with pytest.raises(ValueError, match=r"has shape \(3,\): must be a scalar"):
            readout(heat)


def test_other_fields_that_are_no_integers_are_named(unhooked):
    number: Any = 8.0
    for name in ("max_nodes", "max_depth", "num_leaves"):
        with pytest.raises(ValueError, match=rf"{name}=8.0\)`: must be an integer, 1"):
            TreeSearch(16, **{name: number})
    with pytest.raises(ValueError, match=r"moves=8.0\)`: must be an integer, 0 or more"):
        Temperature(moves=number)
    with pytest.raises(ValueError, match=r"considered_actions=8.0\)`: must be an integer, 1"):
        SequentialHalving(number)
    sixteen: Any = np.int64(16)
    assert TreeSearch(sixteen).num_simulations == 16


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda part: TreeSearch(4, part), "selection={}.*subclass of `zero_search.AbstractSelect"),
        (lambda part: TreeSearch(4, backup=part), "backup={}.*`zero_search.AbstractBackup`"),
        (lambda part: TreeSearch(4, root=part), "root={}.*`zero_search.AbstractRootRule`"),
        (lambda part: TreeSearch(4, readout=part), "readout={}.*`zero_search.AbstractReadout`"),
        (lambda part: PriorRoot(part), "noise={}.*`zero_search.AbstractRootNoise`"),
        (lambda part: TreeSearch.gumbel(4, backup=part), "backup={}.*`zero_search.AbstractBackup`"),
        (lambda part: SequentialHalving(qtransform=part), "qtransform={}.*AbstractQTransform`"),
        (lambda part: ImprovedPolicy(part), "qtransform={}.*AbstractQTransform`"),
        (lambda part: Hindsight(part, 2), "planner={}.*must be an instance of `zero_search.TreeSe"),
        (lambda part: PUCT(qtransform=part), "qtransform={}.*`zero_search.AbstractQTransform`"),
        (lambda part: UCB1(qtransform=part), "qtransform={}.*AbstractQTransform`"),
    ],
)
def test_what_is_no_such_part_is_named(build, message, unhooked):
    with pytest.raises(ValueError, match=message.format("Temperature, a class")):
        build(Temperature)
    with pytest.raises(ValueError, match=message.format("'puct'")):
        build("puct")


def test_what_the_engine_is_given_is_named(unhooked):
    state, keys = TREE.start(3), jr.split(jr.key(0), 3)
    rules, logits = Rules(PUCT()), jnp.zeros((3, 6))
    prior, value = rules.prior(logits), jnp.zeros(3)
    empty = Tree.empty(state, prior, 5)
    with pytest.raises(ValueError, match=r"`prior` float32\[3,1,5\] for trees of float32\[3,1,6\]"):
        empty.plant(state, prior[..., :5], value)
    other = state._replace(depth=state.depth.astype(jnp.float32))
    with pytest.raises(ValueError, match=r"`node.depth` float32\[3\] for trees of int32\[3\]"):
        empty.plant(other, prior, value)
    with pytest.raises(ValueError, match="a node of another structure"):
        empty.plant(tuple(state), prior, value)
    planted = empty.plant(state, prior, value)
    for leaves, number, message in [
        (1, 0, "must be an integer, 1 or more"),
        (2, 5, "must be a multiple of num_leaves"),
        (2, 4, r"make them by `Tree.empty\(..., num_leaves=2, bounded="),
    ]:
        with pytest.raises(ValueError, match=message):
            two = Rules(PUCT(), num_leaves=leaves)
            search(planted, TREE, two, num_simulations=number, key=keys)
    with pytest.raises(ValueError, match=r"`key` is key<fry>\[\] for 3 states"):
        search(planted, TREE, rules, num_simulations=4, key=jr.key(0))
    with pytest.raises(ValueError, match=r"logits int32\[3,6\]"):
        masked_prediction(logits.astype(jnp.int32), value)


@pytest.mark.parametrize("carry", [None, 0, {}])
def test_what_is_no_carry_is_named(carry, unhooked):
    state, keys = TREE.start(3), jr.split(jr.key(0), 3)
    for planner in (TreeSearch(4), Hindsight(TreeSearch(4), 2)):
        with pytest.raises(ValueError, match="`carry` is a .* and no `SearchCarry`: use what this"):
            planner.plan(TREE, state, carry, key=keys)
        with pytest.raises(ValueError, match="`carry` is a .* and no `SearchCarry`: use what this"):
            planner.advance(carry, jnp.zeros(3, int), jnp.zeros(3, bool))
    with pytest.raises(ValueError, match="`action` is list for a carry of 3 games"):
        planner: Any = TreeSearch(4)
        planner.advance(planner.init(TREE, state), [0, 0, 0], [False] * 3)


def test_what_is_no_model_is_named(unhooked):
    state, keys = TREE.start(3), jr.split(jr.key(0), 3)
    planner, model = TreeSearch(4), PUCT()
    carry: Any = planner.init(TREE, state)
    with pytest.raises(ValueError, match=r"model=PUCT\(\)\)`: must be.*AbstractPriorModel"):
        planner.plan(model, state, carry, key=keys)  # pyright: ignore[reportArgumentType]


def test_what_a_plan_is_made_of_is_named(unhooked):
    right: dict[str, Any] = dict(
        action=jnp.zeros(2, jnp.int32),
        weights=jnp.ones((2, 3)) / 3,
        visits=jnp.zeros((2, 3)),
        qvalues=jnp.zeros((2, 3)),
        value=jnp.zeros(2),
        stats={"invalid": jnp.zeros(2, jnp.int32)},
    )
    Plan.over_actions(**right)
    for name, wrong, message in [
        ("weights", jnp.ones(3), r"`weights` is float32\[3\]; it must be float32\[batch,actions\]"),
        ("visits", jnp.zeros((2, 4)), r"`visits` is float32\[2,4\] for weights of shape \(2, 3\)"),
        ("action", jnp.zeros(2), r"`action` is float32\[2\]"),
        ("value", jnp.zeros((2, 1)), r"`value` is float32\[2,1\]"),
        ("stats", {}, r"`stats` has \[\] and no 'invalid'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Plan.over_actions(**(right | {name: wrong}))
    with pytest.raises(ValueError, match="got a plan that is being traced"):
        jax.eval_shape(lambda plan: plan.check(), Plan.over_actions(**right))


class BadPart(AbstractSelection):
    """A selection rule that gets one shape wrong."""

    wrong: str

    def prepare(self, logits):
        prior = safe_softmax(logits)
        return prior if self.wrong == "prepare" else prior[:, None]

    def score(self, node):
        return jnp.sum(node.visits, axis=1) if self.wrong == "score" else node.visits


class BadQ(AbstractQTransform):
    def __call__(self, node):
        return node.value[:, None]


class BadBackup(AbstractBackup):
    def __call__(self, node, outcome):
        return node.qvalues


class BadDtype(AbstractBackup):
    def __call__(self, node, outcome):
        return outcome.astype(jnp.bfloat16)


class BadNoise(AbstractRootNoise):
    def __call__(self, logits, *, key):
        return logits[:, :-1]


class BadRoot(AbstractRootRule):
    """A rule for the root that gets one thing wrong."""

    wrong: str

    def prior(self, logits, *, key):
        return logits, (logits[:, 0] if self.wrong == "gumbel" else jnp.zeros_like(logits))

    def choose(self, simulation, num_simulations, root, inside):
        return inside[:, None] if self.wrong == "shape" else inside.astype(jnp.float32)


class BadReadout(AbstractReadout):
    """A readout that gets one thing wrong, the value if no other."""

    wrong: str

    def __call__(self, root, *, key):
        action, weights = jnp.argmax(root.node.visits, axis=1), jnp.zeros_like(root.logits)
        if self.wrong == "action":
            action = action.astype(jnp.float32)
        if self.wrong == "weights":
            weights = weights[:, 1:]
        return action, weights, root.node.value[:, None]


@pytest.mark.parametrize(
    "planner, message",
    [
        (
            TreeSearch(4, root=BadRoot("gumbel")),
            r"`BadRoot.prior` returned float32\[3\] for 3 rows; it must be float32\[3,6\]: "
            "logits and noise",
        ),
        (
            TreeSearch(4, root=BadRoot("shape")),
            r"`BadRoot.choose` returned int32\[3,1\] for 3 rows; it must be int\[3\]",
        ),
        (TreeSearch(4, root=BadRoot("kind")), r"`BadRoot.choose` returned float32\[3\]"),
        (
            TreeSearch(4, readout=BadReadout("action")),
            r"`BadReadout.__call__` returned float32\[3\] for 3 rows; it must be int\[3\]",
        ),
        (
            Hindsight(TreeSearch(4, readout=BadReadout("weights")), 2),
            r"`BadReadout.__call__` returned float32\[3,5\] for 3 rows; it must be "
            r"float32\[3,6\]: one weight",
        ),
        (TreeSearch(4, readout=BadReadout("value")), r"must be float32\[3\]: one value"),
        (
            TreeSearch(4, BadPart("prepare")),
            r"`BadPart.prepare` returned float32\[3,6\] for 3 rows; it must be "
            r"float32\[3,n,6\]: n features",
        ),
        (
            TreeSearch(4, BadPart("score")),
            r"`BadPart.score` returned float32\[3\] for 3 rows; it must be float32\[3,6\]: "
            "one score for every action of every row",
        ),
        (TreeSearch(4, PUCT(qtransform=BadQ())), r"`BadQ.__call__` returned float32\[3,1\]"),
        (TreeSearch(4, PUCT(qtransform=BadQ())), r"must be float32\[3,6\]: one value"),
        (TreeSearch.gumbel(4, qtransform=BadQ()), r"`BadQ.__call__` returned float32\[3,1\]"),
        (
            TreeSearch(4, backup=BadBackup()),
            r"`BadBackup.__call__` returned float32\[3,6\] for 3 rows; it must be float32\[3\]",
        ),
        (TreeSearch.gumbel(4, backup=BadDtype()), r"`BadDtype.__call__` returned bfloat16\[3\]"),
        (
            TreeSearch.alphazero(4, noise=BadNoise()),
            r"`BadNoise.__call__` returned float32\[3,5\] for 3 rows; it must be "
            r"float32\[3,6\]: one logit for every",
        ),
    ],
)
def test_a_part_that_returns_a_wrong_shape_is_named(planner, message, unhooked):
    with pytest.raises(ValueError, match=message) as error:
        trace(planner, TREE, TREE.start(3), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("planner", [TreeSearch(4, reuse=True), TreeSearch.gumbel(4, reuse=True)])
def test_a_carry_of_other_games_is_named(planner, unhooked):
    state = TREE.start(3)

    def plan(carry, state: Any = state, model: Any = TREE):
        run = lambda carry: planner.plan(model, state, carry, key=jr.split(jr.key(0), 3))
        return jax.eval_shape(run, carry)

    with pytest.raises(ValueError, match=r"`carry.ply` is int32\[2\] for 3 states: use what"):
        plan(planner.init(TREE, TREE.start(2)))
    bigger = dataclasses.replace(planner, num_simulations=5).init(TREE, state)
    with pytest.raises(ValueError, match=r"`carry.tree.step` is int32\[3,11,2\] and not int32\[3,"):
        plan(bigger)
    with pytest.raises(ValueError, match="`carry.tree` holds states of another structure"):
        plan(planner.init(TREE, state), tuple(state), Bad("structure"))


@pytest.mark.parametrize("planner", [TreeSearch(4, reuse=True), TreeSearch.gumbel(4)])
def test_moves_of_other_games_are_named(planner, unhooked):
    carry = planner.init(TREE, TREE.start(3))
    action, last = jnp.zeros((3,), jnp.int32), jnp.zeros((3,), bool)
    with pytest.raises(ValueError, match=r"`action` is float32\[3\] for a carry of 3 games"):
        planner.advance(carry, action.astype(jnp.float32), last)
    with pytest.raises(ValueError, match=r"`last` is bool\[\] for a carry of 3 games; it must be "):
        planner.advance(carry, action, last[0])
    with pytest.raises(ValueError, match=r"`action` is int32\[2\] for a carry of 3 games"):
        planner.advance(carry, action[:2], last)


def test_kept_trees_need_no_check_to_go_on():
    # What `init` and `advance` return is accepted, whatever it has been through.
    planner, state = TreeSearch(4, reuse=True), TREE.start(3)

    def two_moves(state):
        carry = planner.init(TREE, state)
        for _ in range(2):
            plan, carry = planner.plan(TREE, state, carry, key=jr.split(jr.key(0), 3))
            state, _, _, last = TREE.step(state, plan.action, key=jr.split(jr.key(1), 3))
            carry = planner.advance(carry, plan.action, last)
        return carry

    assert isinstance(jax.eval_shape(two_moves, state), SearchCarry)


def test_more_edges_than_32_bits_count_are_refused():
    """Nothing is made: 19x19 Go, 8 192 games and 800 simulations."""
    prior = jnp.zeros((8192, 1, 362))
    tree = jax.eval_shape(lambda: Tree.empty(jnp.zeros((8192, 1)), prior, 801))
    with pytest.raises(ValueError, match="8192 trees of 801 nodes with 362 actions"):
        jax.eval_shape(lambda tree: Forest.of(tree, True), tree)
