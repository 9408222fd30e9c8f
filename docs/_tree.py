"""What a search of Othello saw: `uv run python docs/_tree.py` draws docs/othello-tree.svg."""

import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_envs import PgxEnvironment
from zero_search import PUCT, read_tree, TreeSearch
from zero_train import EnvironmentModel


# What a disc on a square is worth: a corner can never be flipped, its neighbours give it away.
quarter = jnp.array([[20, -4, 2, 1], [-4, -10, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0]]) / 20
weights = jnp.block([[quarter, quarter[:, ::-1]], [quarter[::-1], quarter[::-1, ::-1]]])


def evaluate(observation):
    own, other = jnp.moveaxis(observation.features.astype(jnp.float32), -1, 0)
    return jnp.append(weights.ravel(), 0.0), jnp.tanh(jnp.sum(weights * (own - other)))


def name(action):
    return "pass" if action == 64 else "abcdefgh"[action % 8] + str(action // 8 + 1)


def board(state):
    """Discs of the root's player are full."""
    discs = np.asarray(env.observe(state).features)
    if state.position.current_player != root.position.current_player:
        discs = discs[..., ::-1]
    return "\n".join(" ".join("●" if a else "○" if b else "·" for a, b in row) for row in discs)


env = PgxEnvironment("othello")
step = jax.jit(lambda state, action: env.step(state, action, key=jr.key(0))[0])
root = env.init(key=jr.key(0))
for ply in range(300, 354):  # a random game, six moves from its end
    logits = jnp.where(root.position.legal_action_mask, 0.0, -jnp.inf)
    root = step(root, jr.categorical(jr.key(ply), logits))

model, planner = EnvironmentModel(env, evaluate), TreeSearch(400, PUCT(c=1.0))
states = jax.tree.map(lambda x: jnp.asarray(x)[None], root)  # a batch of one game
carry = planner.init(model, states)
_, _, trees = eqx.filter_jit(planner.grow)(model, states, carry, key=jr.split(jr.key(1), 1))

tree = read_tree(trees)
print(tree.text(name_action=name))
print(*(name(edge.action) for edge in tree.principal_variation()))
picture = tree.svg(name_action=name, describe=board, max_nodes=16, max_children=2)
pathlib.Path(__file__).with_name("othello-tree.svg").write_text(picture, encoding="utf-8")
