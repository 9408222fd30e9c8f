"""The turn of `Monsters` against an engine of events: movers in order of speed, rolls and damage.

The environment has neither order nor rolls. This is what the original's events come to.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from zero_envs import Monsters, MonstersState


SIDE = 3
MOVES = ((0, 0), (0, -1), (0, 1), (-1, 0), (1, 0))
TARGET_FIRST, DISTRACTOR_FIRST = ("!", "?"), ("?", "!")


class Engine:
    """One turn on a board: who is where, by symbol; the agent's item and everybody's health."""

    def __init__(self, cells: dict[str, int], held: str, lucky: bool):
        self.cells, self.held, self.lucky = dict(cells), held, lucky
        self.health = {"@": 11, "!": 20, "?": 20}

    def play(self, moves: dict[str, int], order: tuple[str, ...]) -> None:
        """Events of speed 2, then those of speed 1; those of the dead are struck off."""
        for mover in ("@", *order):
            if mover in self.cells:
                x, y = (a + b for a, b in zip(self.at(mover), MOVES[moves[mover]], strict=True))
                if 0 <= x < SIDE and 0 <= y < SIDE:
                    self.cells[mover] = y * SIDE + x
                self.collide(self.cells[mover])

    def at(self, who: str) -> tuple[int, int]:
        return self.cells[who] % SIDE, self.cells[who] // SIDE

    def collide(self, cell: int) -> None:
        here = [who for who in "@yn!?" if self.cells.get(who) == cell]
        if "@" not in here:
            return
        for item in "yn":
            if item in here:
                self.held = item
                del self.cells[item]
        for monster in "!?":
            if monster in here and "@" in self.cells:
                self.fight(monster)

    def fight(self, monster: str) -> None:
        """The agent strikes first, whoever came. Monsters are armoured against all but one item."""
        if self.held:
            self.health[monster] -= 52 if (self.held, monster) in (("y", "!"), ("n", "?")) else 2
        elif self.lucky:
            self.health[monster] -= 1
        if self.health[monster] > 0:
            self.health["@"] -= 109
        for who in ("@", monster):
            if self.health[who] <= 0:
                del self.cells[who]

    def reward(self) -> float:
        if "@" in self.cells and "!" not in self.cells:
            return 1.0
        return 0.0 if all(who in self.cells for who in "@!?") else -1.0


def random_states(rng: np.random.Generator, number: int) -> list[tuple[dict[str, int], str]]:
    """Monsters may share cells with each other and with items, nobody the agent's."""
    found = []
    for _ in range(number):
        agent, good, bad = (int(x) for x in rng.choice(SIDE**2, 3, replace=False))
        others = [cell for cell in range(SIDE**2) if cell != agent]
        target, distractor = (int(x) for x in rng.choice(others, 2))
        cells = {"@": agent, "!": target, "?": distractor, "y": good, "n": bad}
        taken, held = (("", ""), ("y", "y"), ("n", "n"), ("yn", "y"), ("yn", "n"))[rng.integers(5)]
        found.append(({who: cell for who, cell in cells.items() if who not in taken}, held))
    return found


def odds(cells: dict[str, int], monster: str) -> list[float]:
    """Of its five moves, 60 % of the time one of those that bring it nearer to the agent."""
    spot, prey = (np.asarray([cells[x] % SIDE, cells[x] // SIDE]) for x in (monster, "@"))
    steps = [spot + move for move in MOVES]
    inside = [bool(((step >= 0) & (step < SIDE)).all()) for step in steps]
    nearer = [((step - prey) ** 2).sum() < ((spot - prey) ** 2).sum() for step in steps]
    pairs = zip(nearer, inside, strict=True)
    return [0.6 * n / sum(nearer) + 0.4 * i / sum(inside) for n, i in pairs]


def test_a_turn_is_what_the_events_come_to():
    env, boards = Monsters(SIDE + 2), random_states(np.random.default_rng(0), 80)
    number = len(boards)
    state = MonstersState(
        jnp.asarray([[cells.get(x, -1) for x in "@!?yn"] for cells, _ in boards], jnp.int16),
        jnp.asarray([("", "y", "n").index(held) for _, held in boards], jnp.int8),
        jnp.zeros(number, jnp.int32),
        jnp.zeros(number, jnp.bool_),
    )

    def turn(state, action):
        after = env.afterstate(state, action)
        each = jnp.arange(25, dtype=jnp.int32)
        return env.outcome_logits(after), jax.vmap(lambda i: env.resolve(after, i))(each)

    turns = jax.vmap(jax.vmap(turn, in_axes=(None, 0)), in_axes=(0, None))
    logits, (landed, transition) = jax.jit(turns)(state, jnp.arange(5, dtype=jnp.int32))
    landed, transition = jax.tree.map(np.asarray, (landed, transition))
    probs = np.exp(np.asarray(logits))
    ends = set()
    for i, action in np.ndindex(number, 5):
        cells, held = boards[i]
        first = Engine(cells, held, lucky=True)
        first.play({"@": action}, order=())
        # Who dies before it moves makes no move.
        chances = [odds(cells, who) if who in first.cells else [1.0, 0, 0, 0, 0] for who in "!?"]
        expected = np.outer(chances[0], chances[1]).ravel()
        np.testing.assert_allclose(probs[i, action], expected, atol=1e-6)
        for outcome, (t, d) in enumerate(itertools.product(range(5), range(5))):
            moves = {"@": action, "!": t, "?": d}
            if "!" not in first.cells and t or "?" not in first.cells and d:
                continue
            results = []
            for order, lucky in itertools.product((TARGET_FIRST, DISTRACTOR_FIRST), (True, False)):
                engine = Engine(cells, held, lucky)
                engine.play(moves, order)
                results.append((engine.reward(), engine.cells, engine.held))
            reward, where, holds = results[0]
            assert landed.pieces[i, action, outcome].tolist() == [where.get(x, -1) for x in "@!?yn"]
            assert ("", "y", "n")[landed.held[i, action, outcome]] == holds
            assert transition.reward[i, action, outcome] == reward
            assert transition.last[i, action, outcome] == (reward != 0)
            # Neither rolls nor the order of the monsters change the result; where both come, only
            # who is left of a lost game.
            assert all(result[0] == reward for result in results)
            both = "@" not in where and "@" in first.cells and "!" in first.cells
            if not both:
                assert all(result == results[0] for result in results)
            ends.add((reward, held, "@" in where))
    # Won and lost, killed and not, with each item and without.
    assert {(1.0, "y", True), (-1.0, "y", False), (-1.0, "n", True), (-1.0, "", False)} <= ends
