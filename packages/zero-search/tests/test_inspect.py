"""What is read from a tree, and what is drawn of it."""

import dataclasses
import itertools
import pathlib
import re
import xml.etree.ElementTree as ET
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractChanceModel, PUCT, read_tree, sampled_step, SearchTree, TreeSearch

from .helpers import Node, quick_jit, RandomTree, Reference


BATCH, SIMULATIONS, ROOM = 6, 48, 16
SVG = "{http://www.w3.org/2000/svg}"
# The models here draw nothing.
UNUSED: Any = None


def grow(planner, model, state):
    def run(state, key):
        return planner.grow(model, state, planner.init(model, state), key=key)

    found = quick_jit(run)(state, jr.split(jr.key(0), state.name.shape[0]))
    return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module")
def model():
    turns = (1.0, -1.0, -1.0, -1.0, 0.0)
    return RandomTree(num_actions=4, discounts=turns, truncate=0.1, gamma=0.9)


@pytest.fixture(scope="module")
def planner():
    return TreeSearch(SIMULATIONS, PUCT(1.2), max_nodes=ROOM, reuse=True)


@pytest.fixture(scope="module")
def grown(planner, model):
    return grow(planner, model, model.start(BATCH))


@pytest.fixture(scope="module")
def trees(grown):
    return [read_tree(grown[2], row) for row in range(BATCH)]


@pytest.fixture
def small():
    """A root, its children 1 and 2 behind actions 0 and 1, and an unstored one behind action 3."""
    return SearchTree(
        parent=np.asarray([-1, 0, 0]),
        action=np.asarray([-1, 0, 1]),
        value=np.asarray([0.3, -0.1, 0.5]),
        raw_value=np.zeros(3),
        reward=np.asarray([0.0, 0.0, 1.0]),
        discount=np.asarray([0.0, -1.0, 0.0]),
        final=np.asarray([False, False, True]),
        chance=np.zeros(3, bool),
        legal=np.ones((3, 4), bool),
        prior=np.full((3, 4), 0.25),
        visits=np.asarray([[4, 4, 0, 2], [1, 0, 1, 1], [0, 0, 0, 0]]),
        qvalues=np.asarray([[0.1, 1.0, 9.0, -1.0], [0.2, 9.0, -0.7, 0.2], [0.0, 0.0, 0.0, 0.0]]),
        child=np.asarray([[1, 2, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]]),
        states={"board": np.arange(12).reshape(3, 4)},
    )


def pairs(tree, root):
    """Every stored node beside the reference's, found by the same actions."""
    stack = [(0, root, 0, 1)]
    while stack:
        node, known, depth, side = stack.pop()
        yield node, known, depth, side
        for action, (child, _, discount) in known["children"].items():
            turn = -1 if discount < 0 else 1
            stack.append((tree.child[node, action], child, depth + 1, side * turn))


def test_every_node_equals_the_reference(planner, model, trees):
    oracle = Reference(planner, model)
    unstored = finals = 0
    for row, tree in enumerate(trees):
        state = jax.tree.map(lambda x, row=row: np.asarray(x)[row : row + 1], model.start(BATCH))
        root = oracle.search(oracle.node(state))
        rows = tree.nodes()
        assert [x.node for x in rows] == list(range(len(tree))) and len(tree) == oracle.size(root)
        for node, known, depth, side in pairs(tree, root):
            got = rows[node]
            assert got[3:5] == (depth, side) and got[-2:] == (known["final"], False)
            assert np.allclose([got.raw_value, got.value], [known["raw"], known["mean"]], atol=1e-5)
            assert np.array_equal(tree.state(node).name, known["state"].name[0])
            for edge in tree.actions(node):
                a, visits = edge.action, known["visits"][edge.action]
                assert (edge.node, edge.legal, edge.visits) == (node, known["legal"][a], visits)
                assert np.isclose(edge.prior, known["prior"][a], atol=1e-6)
                assert np.isclose(edge.share, visits / max(1, known["visits"].sum()))
                assert (edge.q is None) == (visits == 0)
                assert edge.q is None or np.isclose(edge.q, known["q"][a], atol=1e-5)
                assert (edge.child is not None) == (a in known["children"])
                unstored += visits > 0 and edge.child is None
                if edge.child is None:
                    continue
                child, reward, discount = known["children"][a]
                below = rows[edge.child]
                assert (below.parent, below.action, edge.final) == (node, a, child["final"])
                assert np.allclose([below.reward, below.discount], [reward, discount], atol=1e-6)
                assert (below.visits, below.q, below.prior) == (visits, edge.q, edge.prior)
                finals += edge.final
    assert unstored > 10 and finals > 10


def test_visits_of_a_node_are_its_evaluation_and_its_edges(trees):
    for tree in trees:
        for row in tree.nodes():
            assert row.final or row.visits == 1 + sum(e.visits for e in tree.actions(row.node))


def test_priors_are_probabilities_where_logits_arekept(model):
    planner = TreeSearch.gumbel(16, max_nodes=10)
    state = model.start(BATCH)
    tree = read_tree(grow(planner, model, state)[2], BATCH - 1)
    predict = quick_jit(lambda s, k: model.predict(s, key=k)[0])
    logits = np.asarray(predict(tree.states, jr.split(jr.key(0), len(tree))))
    odds = np.exp(logits)
    assert np.allclose(tree.prior, odds / odds.sum(axis=1, keepdims=True), atol=1e-6)
    assert np.array_equal(tree.legal, np.isfinite(logits))


def test_principal_variation_takes_the_most_visited(trees):
    lengths = []
    for tree in trees:
        line = tree.principal_variation()
        node = 0
        for edge in line:
            assert edge in tree.actions(node)
            assert edge.visits == tree.visits[node].max() > 0
            node = edge.child
        assert node is None or tree.visits[node].sum() == 0
        assert tree.principal_variation(2) == line[:2] and tree.principal_variation(0) == []
        lengths.append(len(line))
    assert max(lengths) >= 4


def test_equal_visits_fall_to_the_higher_value_then_the_lower_action(small):
    assert [e.action for e in small.principal_variation()] == [1]
    worse = dataclasses.replace(small, qvalues=-small.qvalues)
    assert [e.action for e in worse.principal_variation()] == [0, 2]
    even = dataclasses.replace(small, qvalues=np.zeros((3, 4)))
    assert [e.action for e in even.principal_variation()] == [0, 0]


def is_called(group, name):
    return name in group.get("class", "").split()


def nodes_of(svg):
    return [g for g in ET.fromstring(svg).iter(f"{SVG}g") if is_called(g, "node")]


def label(group):
    texts = {t.get("class"): t.text for t in group.iter(f"{SVG}text")}
    return texts["name"], int(texts["visits"]), float(texts["value"])


ALL = dict(max_nodes=10_000, max_depth=10_000, max_children=10_000)


def test_drawing_without_limits_has_every_visited_action(trees):
    for tree in trees:
        boxes = nodes_of(tree.svg(**ALL))
        assert len(boxes) == 1 + (tree.visits > 0).sum()
        dashed = sum(is_called(g, "unstored") for g in boxes)
        assert dashed == ((tree.visits > 0) & (tree.child < 0)).sum()
        main = [label(g)[0] for g in boxes if is_called(g, "main")]
        assert main == ["root"] + [str(e.action) for e in tree.principal_variation()]


def test_drawn_values_are_for_the_players_at_the_root(trees):
    tree = trees[0]
    side = {row.node: row.side for row in tree.nodes()}
    seen = np.argwhere(tree.visits > 0)
    expected = [(side[n], str(a), tree.visits[n, a], side[n] * tree.qvalues[n, a]) for n, a in seen]
    assert set(side.values()) == {1, -1}
    drawn = []
    for group in nodes_of(tree.svg(**ALL)):
        box, bar = group.iter(f"{SVG}rect")
        red, _, blue = bytes.fromhex(bar.get("fill", "")[1:])
        name, visits, value = label(group)
        assert abs(value) < 0.02 or (blue > red) == (value > 0)
        drawn.append((1 if float(box.get("rx", 0)) < 4 else -1, name, visits, value))
    for want, got in zip(sorted(expected), sorted(drawn[1:]), strict=True):
        assert want[:3] == got[:3] and np.isclose(want[3], got[3], atol=0.0051)


def extent(element):
    """Left, upper, right and lower edge; a letter of the font is 7.2 wide and 12 high."""
    x, y = float(element.get("x", 0)), float(element.get("y", 0))
    if element.tag == f"{SVG}rect":
        return x, y, x + float(element.get("width", 0)), y + float(element.get("height", 0))
    width = 7.2 * len(element.text or "")
    left = x - width if element.get("text-anchor") == "end" else x
    return left, y - 10, left + width, y + 2


def inside(inner, outer):
    return all(x >= y for x, y in zip(inner[:2], outer[:2], strict=True)) and all(
        x <= y for x, y in zip(inner[2:], outer[2:], strict=True)
    )


def apart(one, two):
    return one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]


def test_nothing_overlaps_and_all_lies_on_the_paper(trees):
    describe = lambda s: "\n".join(int(s.depth) % 3 * [int(s.depth) * "wide "])
    for tree in trees:
        svg = tree.svg(max_nodes=25, describe=describe, name_action=lambda a: "name"[: a + 1])
        size = ET.fromstring(svg)
        paper = (0.0, 0.0, float(size.get("width", 0)), float(size.get("height", 0)))
        texts = [extent(text) for text in size.iter(f"{SVG}text")]
        boxes = []
        for group in nodes_of(svg):
            box = extent(next(group.iter(f"{SVG}rect")))
            boxes.append(box)
            for text in group.iter(f"{SVG}text"):
                # What is left out is told below the box, where nothing else may stand.
                told = (text.text or "").endswith("\u2192")
                assert inside(extent(text), box) != told
        assert all(inside(x, paper) for x in texts + boxes)
        assert all(apart(x, y) for x, y in itertools.combinations(texts, 2))
        assert all(apart(x, y) for x, y in itertools.combinations(boxes, 2))
        assert all(apart(x, y) or inside(x, y) for x, y in itertools.product(texts, boxes))


@pytest.mark.parametrize("limits", [dict(max_nodes=7), dict(max_depth=2), dict(max_children=1)])
def test_limits_keep_the_most_visited_and_count_the_others(trees, limits):
    tree = trees[0]
    limits = ALL | limits
    boxes = nodes_of(tree.svg(**limits))
    shown = [label(g)[1] for g in boxes[1:]]
    assert len(shown) <= limits["max_nodes"]
    if limits["max_nodes"] == 7:
        assert sorted(shown) == sorted(tree.visits[tree.visits > 0])[-7:]
    # What is left out directly below what is shown.
    titles = [g.findtext(f"{SVG}title", "") for g in boxes]
    inside = [int(n) for t in titles for n in re.findall(r"^node (\d+)", t, re.MULTILINE)]
    visited = (tree.visits[inside] > 0).sum()
    more = re.findall(r"\+(\d+) more", tree.svg(**limits))
    assert sum(map(int, more)) == visited - len(shown) > 0
    lines = tree.text(**limits).splitlines()
    assert [line.split()[1] for line in lines] == [str(label(g)[1]) for g in boxes]


def test_names_and_descriptions_are_text_not_markup(small):
    names = ["<a>", "&amp;", 'quote"', "bell\x07"]
    svg = small.svg(name_action=names, describe=lambda s: f"<{s['board'][0]}>\n  x  y")
    boxes = nodes_of(svg)
    below = ["<a>", "bell\ufffd", 'quote"']
    assert [label(g)[0] for g in boxes] == ["root", "&amp;", "<a>", *below, "bell\ufffd"]
    lines = [t.text for t in boxes[0].iter(f"{SVG}text") if t.get("class") == "quiet"]
    assert lines == ["<0>", "\u00a0\u00a0x\u00a0\u00a0y"]
    assert small._repr_svg_() == small.svg() and str(small) == small.text()


def test_a_root_alone_can_be_looked_at(small):
    fields = {x.name: getattr(small, x.name) for x in dataclasses.fields(small)}
    alone = {name: x[:1] for name, x in fields.items() if name != "states"}
    alone |= dict(
        value=np.asarray([-0.001]), visits=np.zeros((1, 4), int), child=np.full((1, 4), -1)
    )
    tree = SearchTree(**alone, states={"board": small.states["board"][:1]})
    assert [row.visits for row in tree.nodes()] == [1]
    assert tree.principal_variation() == []
    assert len(nodes_of(tree.svg())) == 1 and tree.text().split() == ["root", "1", "+0.00"]


def test_kept_subtree_can_be_read(planner, model, grown, trees):
    # Of the next plan's tree: what was kept lies at its root.
    plan, carry, _ = grown
    step = quick_jit(lambda s, a, k: model.step(s, a, key=k))
    after, _, _, last = step(model.start(BATCH), plan.action, jr.split(jr.key(0), BATCH))
    carry = quick_jit(planner.advance)(carry, plan.action, last)
    again = quick_jit(lambda s, c, k: planner.grow(model, s, c, key=k)[2])
    tree = again(after, carry, jr.split(jr.key(1), BATCH))
    carry, tree, after, last = jax.tree.map(np.asarray, (carry, tree, after, last))
    kept = 0
    for row in range(BATCH):
        # What lies in the carry is what was there before the move.
        assert read_tree(carry.tree, row).text() == trees[row].text()
        new, old = read_tree(tree, row), trees[row]
        child = old.child[0, int(plan.action[row])]
        assert np.array_equal(new.state(0).name, after.name[row])
        assert new.nodes()[0].q is None and new.reward[0] == new.discount[0] == 0
        if last[row] or child < 0:
            continue
        for edge, before in zip(new.actions(), old.actions(child), strict=True):
            assert edge[2:4] == before[2:4] and edge.visits >= before.visits
        kept += len(new) > 1 and old.visits[child].sum() > 0
    assert kept >= 2


class Tossed(AbstractChanceModel[Node, Node]):
    """A tree whose actions have up to five outcomes each; the last two are rarely possible."""

    tree: RandomTree

    @property
    def num_outcomes(self):
        return 5

    def root(self, state, obs, *, key):
        return state

    def afterstate(self, node, action):
        return Node(node.name * jnp.uint32(9) + action.astype(jnp.uint32), node.depth, node.done)

    def outcome_logits(self, afterstate):
        odd = (afterstate.name % jnp.uint32(2) == 1)[:, None]
        one = (afterstate.name % jnp.uint32(8) == 2)[:, None]
        odds = jnp.where(odd, jnp.asarray([[0.3, 0.5, 0.2, 0, 0]]), 0.2)
        return jnp.log(jnp.where(one & (jnp.arange(5) > 0)[None], 0.0, odds))

    def afterstate_value(self, afterstate, *, key):
        return None

    def resolve(self, afterstate, outcome):
        return self.tree.step(afterstate, outcome, key=UNUSED)

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    def predict(self, node, *, key):
        return self.tree.predict(node, key=key)


@pytest.fixture(scope="module")
def tossed():
    """Trees with chance nodes, of three actions and five outcomes."""
    tree = RandomTree(num_actions=3, discounts=(1.0, -1.0, -1.0, 0.0))
    plan, _, grown = grow(TreeSearch(60, max_nodes=50), Tossed(tree), tree.start(3))
    trees = [read_tree(grown, row) for row in range(3)]
    assert np.array_equal(plan.visits, [tree.visits[0, :3] for tree in trees])
    return tree, trees


def test_chance_nodes_have_outcomes_for_columns(tossed):
    model, trees = tossed
    unused = jr.split(jr.key(0), 50)
    assert isinstance(trees[0].states, Node) and trees[0].child.shape[1] == 5
    world = Tossed(model)
    priors = quick_jit(lambda s, k: jax.nn.softmax(world.predict(s, key=k)[0]))
    laws = quick_jit(lambda s, a: jax.nn.softmax(world.outcome_logits(world.afterstate(s, a))))
    followed = single = 0
    for tree in trees:
        rows, size = tree.nodes(), len(tree)
        assert not tree.chance[0] and tree.chance.any() and not (tree.chance & tree.final).any()
        padded = jax.tree.map(lambda x: np.resize(x, 50), tree.states)
        prior = np.asarray(priors(padded, unused))[:size]
        at = ~tree.chance
        assert np.allclose(tree.prior[at, :3], prior[at], atol=1e-6)
        assert not tree.legal[at, 3:].any() and not tree.visits[at, 3:].any()
        above = jax.tree.map(lambda x, t=tree: np.resize(x[t.parent], 50), tree.states)
        taken = np.resize(np.maximum(tree.action, 0), 50) % 3
        odds = np.asarray(laws(above, taken.astype(np.int32)))[:size]
        for row in rows[1:]:
            up = rows[row.parent or 0]
            assert row.chance == tree.chance[row.node] and not (row.chance and up.chance)
            if row.chance:
                assert (row.discount, row.reward, row.side) == (1, 0, up.side)
                assert np.allclose(tree.prior[row.node], odds[row.node], atol=1e-6)
                assert np.array_equal(tree.legal[row.node], odds[row.node] > 0)
                followed += 1
            elif not up.chance:  # a single outcome is possible: no node is spent on it
                single += 1
    assert followed > 20 and single > 0


def test_outcomes_are_named_apart_from_actions(tossed):
    _, trees = tossed
    tree, seen = trees[0], []

    def describe(state):
        seen.append(state)
        return f"after {state.depth}"

    actions, outcomes = ["left", "right", "stay"], ["a", "b", "c", "d", "e"]
    named: Any = dict(name_action=actions, name_outcome=outcomes)
    plain = [str(i) for i in range(3)], [f"outcome {i}" for i in range(5)]
    drawings = [tree.svg(**ALL, **named, describe=describe), tree.svg(**ALL)]
    for svg, names in zip(drawings, [(actions, outcomes), plain], strict=True):
        for group in nodes_of(svg)[1:]:
            title = group.findtext(f"{SVG}title", "").splitlines()
            kind, number, node = re.findall(r"^(\w+) (\d+) at node (\d+)", title[1])[0]
            chance = tree.chance[int(node)]
            assert kind == ("outcome" if chance else "action")
            assert ("probability" in title[2]) == chance
            assert label(group)[0] == names[int(chance)][int(number)]
    assert len(seen) == np.sum(~tree.chance)
    lines = tree.text(**ALL, **named).splitlines()
    assert {line.split()[0] for line in lines} == {"root", *actions, *outcomes}
    with pytest.raises(ValueError, match="`name_action` has 2 names for 3 actions"):
        tree.text(name_action=["left", "right"])
    with pytest.raises(ValueError, match="`name_outcome` has 2 names for 5 outcomes"):
        tree.svg(name_outcome=["a", "b"])


def test_what_is_wrong_is_said_in_one_line(grown, small):
    for row in (-1, BATCH):
        with pytest.raises(IndexError, match=f"row={row}.`: this batch has the rows 0 to 5"):
            read_tree(grown[2], row)
    for look in (small.actions, small.state):
        for node in (-1, 3):
            with pytest.raises(IndexError, match=f"`node={node}`: this tree has the nodes 0 to 2"):
                look(node)
    small.text(name_outcome=["a", "b"])  # of a world whose chance did not move yet
    with pytest.raises(ValueError, match="2 names for 4 actions"):
        small.svg(name_action=["a", "b"])
    for name in ("max_nodes", "max_depth", "max_children"):
        with pytest.raises(ValueError, match=f"{name}=0.`: must be an integer, 1 or more"):
            small.svg(**{name: 0})
    with pytest.raises(ValueError, match="`read_tree.row=1.`: no tree was kept for this row"):
        read_tree(jax.tree.map(np.zeros_like, grown[2]), 1)
    with pytest.raises(ValueError, match="being traced: return it"):
        jax.eval_shape(lambda t: read_tree(t).visits, grown[2])


def test_the_page_draws_what_it_says(tmp_path, monkeypatch, capsys):
    package = pathlib.Path(__file__).parent.parent
    texts = [
        (package / "README.md").read_text(encoding="utf-8"),
        (package.parent.parent / "docs" / "looking-inside.md").read_text(encoding="utf-8"),
    ]
    (game,), pages = (re.findall(r"```python\n(.*?)```", text, re.DOTALL) for text in texts)
    (inside,) = (block for block in pages if "nim.svg" in block)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(game + inside, names)
    lines = capsys.readouterr().out.splitlines()
    # Seven left: who takes three, and thereby leaves four, wins.
    assert lines[1].split()[0] == "root" and lines[2].split()[:2] == ["take", "3"]
    drawn = nodes_of((tmp_path / "nim.svg").read_text(encoding="utf-8"))
    assert label(drawn[1])[0] == "take 3"
    assert "4 left" in [
        t.text.replace("\u00a0", " ") for t in drawn[1].iter(f"{SVG}text") if t.text
    ]
