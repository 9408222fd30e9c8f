"""The learned models of MuZero and Stochastic MuZero."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ._assemblies import Chain, Concatenate, ConcatenateOneHot
from ._checks import check_board, check_function, check_sizes, subkeys
from ._recurrent import Recurrent
from ._world_parts import (
    actions_of,
    Beside,
    board_prediction,
    BoardDynamics,
    flat,
    head,
    HEAD_CHANNELS,
    linear,
    moved,
    normalise_min_max,
    perceptron,
    policy_head,
    prediction_of,
    projections,
    remembering,
    Tower,
)


#: A hidden state or an afterstate of one example, of any shape.
Hidden = Float[Array, "..."]


class WorldModel(eqx.Module):
    """Representation, dynamics and prediction of MuZero (Schrittwieser et al. 2020,
    https://arxiv.org/abs/1911.08265, appendices F and G).

    A hidden state is one array, scaled to `[0, 1]` by its own smallest and largest entry. In a
    step the dynamics' result is added to the hidden state, and the sum is scaled.

    [`zero_nets.WorldModel.perceptron`][] and [`zero_nets.WorldModel.convolutional`][] build one.

    **Attributes:**

    - `encoder`: maps an observation to a hidden state.
    - `dynamics`: maps a hidden state and an action to what is added to the hidden state.
    - `reward`: maps the next hidden state to the reward of the step that led to it: a number, or
        the logits of a [`zero_nets.ValueSupport`][].
    - `prediction`: maps a hidden state to the logits of the policy, or a distribution, and the
        value, as an [`zero_nets.ActorCritic`][] does.
    - `projector`, `predictor`: for a loss of temporal consistency (EfficientZero, Ye et al. 2021,
        https://arxiv.org/abs/2111.00210): from a hidden state to a vector, and from there to that
        of what was observed. `None` without one.
    - `memory`: remembers what was observed in an episode; `None` for a network that does not. The
        encoder then maps the pair of an observation and the memory's result to a hidden state.
    """

    encoder: Callable[..., Any]
    dynamics: Callable[..., Any]
    reward: Callable[..., Any]
    prediction: Callable[..., Any]
    projector: Callable[..., Any] | None = None
    predictor: Callable[..., Any] | None = None
    memory: Recurrent | None = None

    def __check_init__(self):
        check_function(encoder=self.encoder, dynamics=self.dynamics)
        check_function(reward=self.reward, prediction=self.prediction)
        if self.projector is not None or self.predictor is not None:
            check_function(projector=self.projector, predictor=self.predictor)

    @classmethod
    def perceptron(
        cls,
        observation: PyTree,
        num_actions: int | tuple[int, ...] | None = None,
        *,
        action_size: int | None = None,
        width: int = 64,
        layers: int = 1,
        value_shape: tuple[int, ...] = (),
        projection_size: int | None = None,
        memory_size: int | None = None,
        key: PRNGKeyArray,
    ) -> "WorldModel":
        """Perceptrons of all numbers of an observation, whatever its structure.

        **Arguments:**

        - `observation`: one observation, or its shapes.
        - `num_actions`: the number of discrete actions, for which it predicts logits; or that of
            each component of an action, for which it predicts a [`zero_nets.MultiDiscrete`][].
        - `action_size`: of continuous actions from -1 to 1 instead, for which it predicts a
            [`zero_nets.TanhGaussian`][].
        - `width`: of the hidden state and of every layer.
        - `layers`: hidden layers of the encoder and the dynamics.
        - `value_shape`: of a value and a reward: `(atoms,)` where both are logits.
        - `projection_size`: of the vectors of the consistency loss; `None` for a network that is
            trained without.
        - `memory_size`: of a gated recurrent unit that sees what is observed; `None` for a network
            that remembers nothing.
        """
        check_sizes(width=width, layers=layers)
        sizes, join, policy = actions_of(num_actions, action_size)
        inputs = sizes if isinstance(sizes, int) else sum(sizes)
        size = sum(leaf.size for leaf in jax.tree.leaves(observation))
        hkey, gkey, rkey, pkey = jr.split(key, 4)
        widths = (width,) * (layers + 1)
        seen = size + (memory_size or 0)
        see = lambda key: Chain(Concatenate(), perceptron(size, (width,), key=key))
        return cls(
            Chain(Concatenate(), perceptron(seen, widths, activate_final=False, key=hkey)),
            Chain(join, perceptron(width + inputs, widths, activate_final=False, key=gkey)),
            head(width, width, linear(value_shape), key=rkey),
            prediction_of(width, width, policy, value_shape, key=pkey),
            *projections(width, width, projection_size, key=jr.fold_in(key, 4)),
            remembering(see, width, memory_size, key=jr.fold_in(key, 5)),
        )

    @classmethod
    def convolutional(
        cls,
        shape: tuple[int, ...],
        num_actions: int | tuple[int, ...] | None = None,
        *,
        action_size: int | None = None,
        channels: int = 32,
        blocks: int = 2,
        width: int = 64,
        value_shape: tuple[int, ...] = (),
        projection_size: int | None = None,
        memory_size: int | None = None,
        key: PRNGKeyArray,
    ) -> "WorldModel":
        """Residual blocks over a board or image `[rows, columns, features]`, whose hidden state is
        `[rows, columns, channels]`. A discrete action is a learned plane of the board, which begins
        as its cell or column where there are as many actions; one of several components is the sum
        of theirs, and a continuous one that of all planes by its numbers.

        **Arguments:**

        - `num_actions`, `action_size`: as in [`zero_nets.WorldModel.perceptron`][].
        - `blocks`: residual blocks of the encoder and of the dynamics.
        - `width`: hidden units of the heads.
        - `value_shape`, `projection_size`, `memory_size`: as in
            [`zero_nets.WorldModel.perceptron`][]. The unit sees one layer of convolutions, and the
            encoder a plane of each of its numbers.
        """
        check_board("shape", shape)
        check_sizes(channels=channels, blocks=blocks, width=width)
        sizes, _, policy = actions_of(num_actions, action_size)
        rows, columns, features = shape
        hkey, gkey, rkey, pkey = jr.split(key, 4)
        rkey, rhead = jr.split(rkey)
        board = rows, columns, channels
        size = rows * columns * HEAD_CHANNELS
        seen = rows, columns, features + (memory_size or 0)
        encoder = Tower(seen, channels, blocks, key=hkey)
        moves = isinstance(sizes, int) and action_size is None

        def see(key: PRNGKeyArray) -> Chain:
            first, second = jr.split(key)
            return Chain(Tower(tuple(shape), channels, 0, key=first), flat(channels, key=second))

        return cls(
            encoder if memory_size is None else Chain(Beside(), encoder),
            BoardDynamics(board, sizes, blocks, moves=moves, key=gkey),
            Chain(flat(channels, key=rhead), head(size, width, linear(value_shape), key=rkey)),
            board_prediction(board, width, policy, value_shape, key=pkey),
            *projections(math.prod(board), width, projection_size, key=jr.fold_in(key, 4)),
            remembering(see, size, memory_size, key=jr.fold_in(key, 5)),
        )

    def represent(self, observation: PyTree, *, key: PRNGKeyArray | None = None) -> Hidden:
        """The hidden state of an observation, or of the pair of one and the memory's result."""
        return normalise_min_max(self.encoder(observation, key=key))

    def step(
        self, hidden: Hidden, action: PyTree, *, key: PRNGKeyArray | None = None
    ) -> tuple[Hidden, Any]:
        """The hidden state after an action, and the reward network's result for it."""
        gkey, rkey = subkeys(key, 2)
        hidden = moved(self.dynamics, hidden, action, key=gkey)
        return hidden, self.reward(hidden, key=rkey)

    def predict(self, hidden: Hidden, *, key: PRNGKeyArray | None = None) -> tuple[Any, Any]:
        """The policy, or its logits, and the value of a hidden state, for the player to move."""
        return self.prediction(hidden, key=key)

    def project(self, hidden: Hidden) -> Float[Array, " projection"]:
        """The vector of a hidden state, for a loss of consistency."""
        if self.projector is None:
            raise ValueError(
                "This WorldModel was built without vectors for a loss of consistency; give its "
                "builder a `projection_size`."
            )
        return self.projector(jnp.ravel(hidden))

    def predict_projection(
        self, projection: Float[Array, " projection"]
    ) -> Float[Array, " projection"]:
        """The vector that is predicted of what is observed, from that of an unrolled hidden
        state."""
        assert self.predictor is not None  # as `projector`
        return self.predictor(projection)


class AbstractWorldNetwork(eqx.Module):
    """A learned model that represents observations, predicts, and projects hidden states as the
    [`zero_nets.WorldModel`][] does that is a part of it."""

    world: eqx.AbstractVar[WorldModel]

    def represent(self, observation: PyTree, *, key: PRNGKeyArray | None = None) -> Hidden:
        return self.world.represent(observation, key=key)

    def predict(self, hidden: Hidden, *, key: PRNGKeyArray | None = None) -> tuple[Any, Any]:
        return self.world.predict(hidden, key=key)

    def project(self, hidden: Hidden) -> Float[Array, " projection"]:
        return self.world.project(hidden)

    def predict_projection(
        self, projection: Float[Array, " projection"]
    ) -> Float[Array, " projection"]:
        return self.world.predict_projection(projection)


class StochasticWorldModel(AbstractWorldNetwork):
    """The networks of Stochastic MuZero (Antonoglou et al. 2022, "Planning in stochastic
    environments with a learned model").

    An action leads from a hidden state to an afterstate, which is an array of the same shape and
    scaled in the same way, and a code of what chance did leads from there to the next hidden state.

    [`zero_nets.StochasticWorldModel.perceptron`][] and
    [`zero_nets.StochasticWorldModel.convolutional`][] build one.

    **Attributes:**

    - `world`: a [`zero_nets.WorldModel`][] whose dynamics take afterstates and codes, vectors
        `[codes]`, instead of hidden states and actions.
    - `action`: maps a hidden state and an action to what is added to the hidden state.
    - `chance`: maps an afterstate to the logits of the codes and a value, as an
        [`zero_nets.ActorCritic`][] does.
    - `encoder`: maps two observations in turn to a score for each code.
    - `num_codes`: the number of codes.
    """

    world: WorldModel
    action: Callable[..., Any]
    chance: Callable[..., Any]
    encoder: Callable[..., Any]
    num_codes: int = eqx.field(static=True)

    def __check_init__(self):
        check_function(action=self.action, chance=self.chance, encoder=self.encoder)
        check_sizes(num_codes=self.num_codes)

    @classmethod
    def perceptron(
        cls,
        observation: PyTree,
        num_actions: int,
        *,
        num_codes: int = 32,
        width: int = 64,
        layers: int = 1,
        value_shape: tuple[int, ...] = (),
        projection_size: int | None = None,
        key: PRNGKeyArray,
    ) -> "StochasticWorldModel":
        """Perceptrons, as in [`zero_nets.WorldModel.perceptron`][]."""
        check_sizes(num_codes=num_codes, num_actions=num_actions)
        num_codes, num_actions = int(num_codes), int(num_actions)
        wkey, gkey, akey, ckey, ekey = jr.split(key, 5)
        world = WorldModel.perceptron(
            observation,
            num_actions,
            width=width,
            layers=layers,
            value_shape=value_shape,
            projection_size=projection_size,
            key=wkey,
        )
        size = sum(leaf.size for leaf in jax.tree.leaves(observation))
        mlp = lambda in_size, out_size, key: perceptron(
            in_size, (width,) * layers + (out_size,), activate_final=False, key=key
        )
        dynamics = Chain(Concatenate(), mlp(width + num_codes, width, gkey))
        return cls(
            eqx.tree_at(lambda world: world.dynamics, world, dynamics),
            Chain(ConcatenateOneHot(num_actions), mlp(width + num_actions, width, akey)),
            prediction_of(width, width, policy_head(num_codes), value_shape, key=ckey),
            Chain(Concatenate(), mlp(2 * size, num_codes, ekey)),
            num_codes,
        )

    @classmethod
    def convolutional(
        cls,
        shape: tuple[int, ...],
        num_actions: int,
        *,
        num_codes: int = 32,
        channels: int = 32,
        blocks: int = 2,
        width: int = 64,
        value_shape: tuple[int, ...] = (),
        projection_size: int | None = None,
        key: PRNGKeyArray,
    ) -> "StochasticWorldModel":
        """Residual blocks, as in [`zero_nets.WorldModel.convolutional`][]; codes are learned planes
        too."""
        check_sizes(num_codes=num_codes, num_actions=num_actions)
        num_codes, num_actions = int(num_codes), int(num_actions)
        wkey, gkey, akey, ckey, tkey, fkey, ekey = jr.split(key, 7)
        world = WorldModel.convolutional(
            shape,
            num_actions,
            channels=channels,
            blocks=blocks,
            width=width,
            value_shape=value_shape,
            projection_size=projection_size,
            key=wkey,
        )
        rows, columns, features = shape
        board = rows, columns, channels
        dynamics = BoardDynamics(board, num_codes, blocks, key=gkey)
        size = rows * columns * HEAD_CHANNELS
        return cls(
            eqx.tree_at(lambda world: world.dynamics, world, dynamics),
            BoardDynamics(board, num_actions, blocks, moves=True, key=akey),
            board_prediction(board, width, policy_head(num_codes), value_shape, key=ckey),
            Chain(
                Beside(),
                Tower((rows, columns, 2 * features), channels, blocks, key=tkey),
                flat(channels, key=fkey),
                perceptron(size, (width, num_codes), activate_final=False, key=ekey),
            ),
            num_codes,
        )

    def afterstate(
        self, hidden: Hidden, action: PyTree, *, key: PRNGKeyArray | None = None
    ) -> Hidden:
        """The afterstate that an action leads to."""
        return moved(self.action, hidden, action, key=key)

    def predict_afterstate(
        self, afterstate: Hidden, *, key: PRNGKeyArray | None = None
    ) -> tuple[Any, Any]:
        """The logits of the codes, and the value for the player who acted, with the reward of the
        move."""
        return self.chance(afterstate, key=key)

    def resolve(
        self, afterstate: Hidden, code: Float[Array, " codes"], *, key: PRNGKeyArray | None = None
    ) -> tuple[Hidden, Any]:
        """The hidden state that a one-hot code leads to, and the reward network's result for it."""
        return self.world.step(afterstate, code, key=key)

    def encode(
        self, observation: PyTree, next_observation: PyTree, *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " codes"]:
        """A score for each code of what chance did between two observations."""
        return self.encoder(observation, next_observation, key=key)
