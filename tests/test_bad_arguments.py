"""Public constructors of the libraries are given what no field of its kind can be: NaN, infinity,
negative numbers, fractions of integers, texts. They refuse each in a sentence that names the field.
"""

import collections.abc
import functools as ft
import inspect
import math
import types
import typing
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import optax
import pytest

import zero_app as app
import zero_envs
import zero_nets as nets
import zero_search as search
import zero_train as train
from zero_envs.testing import Corridor, Nim
from zero_memory import EpisodeBuffer, Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer
from zero_train import losses


KEY = {"key": None}  # a fresh one for every call
SIZES = {"capacity": 8, "num_envs": 4, "batch_size": 4, "num_shards": 1}
WINDOWS = SIZES | {"length": 4, "period": 4}
HEAD = {"in_size": 3, "action_size": 2} | KEY
ADAM = optax.adam(1e-3)
DUAL = losses.Dual(0.0)
REGION = losses.TrustRegion(0.1, 0.1, DUAL, DUAL)
MODEL = train.EnvironmentModel(Nim(), train.indifferent)
PARTS = {"network": nets.MLP, "optimiser": ADAM, "model": ft.partial(train.EnvironmentModel, Nim())}
CRITIC = {"policy": nets.MLP, "critic": nets.MLP, "region": REGION}
CRITIC |= {f"{name}_optimiser": ADAM for name in ("policy", "critic", "dual")}
TREE, CLOUD = search.TreeSearch(4), search.ParticleSearch()

#: Of every class whose arguments mean something, the arguments without a default.
GIVEN: dict[type, dict[str, Any]] = {
    zero_envs.CartPole: {},
    zero_envs.LightDark: {},
    zero_envs.Minesweeper: {},
    zero_envs.Monsters: {},
    zero_envs.LightFilter: {},
    zero_envs.ParticleFilter: {},
    zero_envs.Pendulum: {},
    zero_envs.RockSample: {"size": 3, "rocks": ((0, 1),), "start": (0, 0)},
    zero_envs.SokobanGenerator: {},
    zero_envs.Tag: {},
    zero_envs.Tiger: {},
    zero_envs.TimeLimit: {"env": Nim(), "max_steps": 5},
    Corridor: {},
    Nim: {},
    EpisodeBuffer: SIZES,
    Latest: WINDOWS,
    PrioritisedTrajectoryBuffer: WINDOWS,
    TrajectoryBuffer: WINDOWS,
    nets.AlphaZeroNet: {"board_shape": (3, 3, 2), "num_actions": 9, "channels": 2} | KEY,
    nets.BetaHead: HEAD,
    nets.BoardSymmetries: {"rows": 3, "columns": 3, "num_actions": 9},
    nets.CNN: {"shape": (36, 36, 1)} | KEY,
    nets.CategoricalHead: {"in_size": 3, "num_actions": 2} | KEY,
    nets.ChannelNorm: {"channels": 2},
    nets.Conv: {"in_channels": 2, "out_channels": 2} | KEY,
    nets.Dueling: {"in_size": 3, "shape": (2,)} | KEY,
    nets.GaussianHead: HEAD,
    nets.LinearHead: {"in_size": 3} | KEY,
    nets.MLP: {"in_size": 3, "widths": (2,)} | KEY,
    nets.MixedPrecision: {"net": abs, "dtype": "float16"},
    nets.MultiDiscreteHead: {"in_size": 3, "num_actions": (2, 2)} | KEY,
    nets.NoisyLinear: {"in_size": 3, "out_size": 2} | KEY,
    nets.RNN: {"in_size": 3, "hidden_size": 2} | KEY,
    nets.ResidualBlock: {"channels": 2, "norm": "none"} | KEY,
    nets.TanhGaussianHead: HEAD,
    nets.ValueSupport: {},
    nets.VectorResNet: {"in_size": 3, "width": 2} | KEY,
    nets.VisualResNet: {"shape": (8, 8, 1)} | KEY,
    search.ByMinMax: {"low": 0.0, "high": 1.0},
    search.ByParentAndSiblings: {},
    search.CompletedByMixedValue: {},
    search.DirichletNoise: {},
    search.FirstPlayUrgency: {},
    search.GaussianNoise: {"scale": 0.1},
    search.LowerBound: {},
    search.Hindsight: {"planner": TREE, "num_trees": 2},
    search.PUCB: {},
    search.PUCT: {},
    search.ParticleSearch: {},
    search.PlainQ: {},
    search.PlayoutModel: {"model": MODEL, "num_steps": 2},
    search.PriorRoot: {},
    search.SoftmaxQ: {},
    search.Temperature: {},
    search.TreeSearch: {"num_simulations": 4},
    search.UCB1: {},
    search.VisitCounts: {},
    train.EnvironmentModel: {"env": Nim(), "evaluate": train.indifferent},
    train.ExpertIteration: PARTS | {"explorer": TREE, "planner": TREE, "gamma": 1.0},
    train.Loop: {
        "env": Nim(),
        "unroll_length": 2,
        "buffer": EpisodeBuffer(8, 4, 4),
        "agent": train.ExpertIteration(**PARTS, explorer=TREE, planner=TREE, gamma=1.0),
    },
    train.MPO: CRITIC,
    train.NStepReturns: {},
    train.PlanningActor: {"planner": TREE, "model": MODEL},
    train.PolicyActor: {"evaluate": train.indifferent},
    train.SPO: CRITIC | {"model": PARTS["model"], "explorer": CLOUD, "planner": CLOUD},
    losses.Dual: {"rho": 0.0},
    losses.TrustRegion: {"epsilon": 0.1, "epsilon_policy": 0.1, "temperature": DUAL, "alpha": DUAL},
}

#: Numbers that mean something in these fields.
MEANINGFUL = {
    "step_penalty": (0.0,), "sight": (0.0, math.inf), "aggression": (0.0,),
    "wall_probability": (0.0,), "num_mines": (0,), "blocks": (0,), "scale": (0.0, -1.0),
    "noise": (0.0,), "min_scale": (0.0,), "minimum": (0.0, -1.0), "maximum": (0.0, -1.0),
    "unvisited": (0.0, -1.0), "low": (0.0, -1.0), "high": (0.0, -1.0), "reduction": (0.0, -1.0),
    "fraction": (0.0,), "temperature": (0.0,), "first": (0.0,), "then": (0.0,), "moves": (0,),
    "lambda_": (0.0,), "mixing": (0.0,), "virtual_loss": (0.0,), "alpha": (0.0,), "beta": (0.0,),
    "gamma": (0.0,), "value_mix": (0.0,), "value_weight": (0.0,), "entropy_bonus": (0.0,),
    "l2": (0.0,), "auxiliary_weight": (0.0,), "target_rate": (0.0,), "rho": (0.0, -1.0),
    "c": (0.0,), "epsilon": (0.0, math.inf), "epsilon_policy": (math.inf,),
    "resample_below": (0.0,), "value_scale": (0.0,), "maxvisit_init": (0.0,),
    "min_particles": (0,), "actor_devices": (0,), "reanalyse": (0.0,), "effective": (0.0,),
    "light": (0.0, -1.0), "slope": (0.0,), "reward": (0.0,), "cost": (0.0,), "bound": (0.0,),
    "spread": (0,), "width": (0.0,), "share": (0.0,), "opening_plies": (0,),
}  # fmt: skip


def _kinds(annotation: Any) -> set[Any]:
    """The plain types of an annotation: `float` of `float | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*map(_kinds, typing.get_args(annotation)))
    if typing.get_origin(annotation) is collections.abc.Callable:
        return {"function"}
    return {typing.get_origin(annotation) or annotation}


def _bad(annotation: Any, name: str) -> list[Any]:
    kinds = _kinds(annotation)
    good = MEANINGFUL.get(name, ())
    if float in kinds:
        return [x for x in (math.nan, math.inf, -math.inf, -1.0, 0.0, "0.5") if x not in good]
    if int in kinds:
        return [x for x in (math.nan, -1, 0, 1.5, "7") if x not in good]
    if "function" in kinds or any(getattr(x, "__module__", "").startswith("zero_") for x in kinds):
        return ["adam", 3]
    return ["adam"] if "optimiser" in name else []


CASES = [
    (kind, name)
    for kind in GIVEN
    for name, parameter in inspect.signature(kind).parameters.items()
    if name != "key" and _bad(parameter.annotation, name)
]


@pytest.fixture(autouse=True, scope="module")
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.filterwarnings("ignore:Using `field:UserWarning")
@pytest.mark.parametrize("kind", GIVEN)
def test_what_a_field_cannot_be_is_refused_by_its_name(kind):
    make = lambda **given: kind(**given | ({"key": jr.key(0)} if "key" in given else {}))
    make(**GIVEN[kind])
    wrong = []
    for name in [name for owner, name in CASES if owner is kind]:
        for bad in _bad(inspect.signature(kind).parameters[name].annotation, name):
            try:
                make(**GIVEN[kind] | {name: bad})
                wrong.append(f"{name}={bad!r} is accepted")
            except (ValueError, TypeError) as e:
                if name not in str(e):
                    wrong.append(f"{name}={bad!r}: {e}")
    assert not wrong, "\n".join(wrong)


#: Those that hide their state.
WORLDS = zero_envs.LightDark(), zero_envs.RockSample.of(7, 8), zero_envs.Tag(), zero_envs.Tiger()


@pytest.mark.parametrize(
    "env",
    [
        zero_envs.Backgammon(),
        zero_envs.CartPole(),
        zero_envs.Game2048(),
        zero_envs.Minesweeper(3, 3, 1),
        zero_envs.Monsters(),
        zero_envs.Othello(),
        *WORLDS,
        zero_envs.TimeLimit(Nim(), 5),
        Corridor(),
        Nim(),
    ],
    ids=lambda env: type(env).__name__,
)
def test_actions_that_an_environment_does_not_have(env):
    state = env.init(key=jr.key(0))
    for action in (1.5, jnp.float32(1), [1], jnp.zeros(1, int), -1, 999, jnp.int32(999), True):
        with pytest.raises(ValueError, match="the action is .*; it must be one integer from 0 to"):
            env.step(state, action, key=jr.key(1))


ONES: list[Any] = [
    zero_envs.CartPole(), zero_envs.Game2048(), zero_envs.Minesweeper(3, 3, 1),
    zero_envs.Monsters(), zero_envs.Othello(), zero_envs.Pendulum(), Corridor(), Nim(), *WORLDS,
]  # fmt: skip


@pytest.mark.parametrize("env", ONES, ids=lambda env: type(env).__name__)
@pytest.mark.parametrize("batch", [1, 2, 4, 5])
def test_a_batch_of_states_is_refused(env, batch):
    states = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(0), batch))
    action: Any = jnp.zeros(1) if isinstance(env, zero_envs.Pendulum) else 1
    for call in (lambda: env.observe(states), lambda: env.step(states, action, key=jr.key(1))):
        with pytest.raises(ValueError, match="one state has . axes. Use jax.vmap over a batch"):
            call()


@pytest.mark.parametrize("action", [None, "one", {"a": 1}])
def test_actions_that_are_no_numbers(action):
    envs: list[Any] = [Nim(), zero_envs.JumanjiEnvironment("Game2048-v1")]
    for env in envs:
        with pytest.raises(ValueError, match="the action .*integer"):
            env.step(env.init(key=jr.key(0)), action, key=jr.key(1))


@pytest.mark.parametrize(
    "points", [np.zeros((0, 2)), np.full((2, 2), np.nan), np.full((2, 1), 1.5), np.zeros(2)]
)
def test_points_that_make_no_interval(points):
    with pytest.raises(ValueError, match="score_interval was given points"):
        train.score_interval(points)


# Type checkers know these calls to be wrong.
NETS: Any = nets
TRAIN: Any = train
APP: Any = app
ONE, TWO = NETS.Categorical(jnp.zeros(3)), NETS.Gaussian(jnp.zeros(2), jnp.ones(2))
PAIR = NETS.MultiDiscrete(jnp.zeros(4), (2, 2))
STATISTICS = NETS.RunningStatistics.init(jnp.zeros(2))
POINTS = np.ones((2, 2))
LOSSES, RETURNS = TRAIN.losses, TRAIN.returns
LOGITS, STEP = jnp.zeros(3), (jnp.float32(0),) * 4
ROWS, ENDS = (LOGITS,) * 3, [False] * 3
RETURN = {"return": [1.0]}
SAMPLED = jnp.zeros(2, jnp.int32), jnp.zeros(2)
BOUNDS = {"temperature": DUAL, "alpha": DUAL, "epsilon": 0.1, "epsilon_policy": 0.1}
CELL = NETS.RNN(3, 2, key=jr.key(0))
NAMES = {"environment": "e", "task": "t", "algorithm": "a", "seed": 0, "step": 1}
ENVS: Any = zero_envs
CALLS: list[tuple[Any, str]] = [
    (lambda: ENVS.make(None), "give the name of an environment"),
    (lambda: ENVS.make("othello", size=8), r'make\("othello"\).*size'),
    (lambda: ENVS.make("pgx/othello", size=8), r'make\("pgx/othello"\).*size'),
    (lambda: ENVS.PgxEnvironment(None), r"PgxEnvironment\(None\): give an id or"),
    (lambda: ENVS.gymnasium_environment(3), r"gymnasium_environment\(3\): give the name"),
    (lambda: ENVS.PgxEnvironment(Nim()), "give an id or a pgx.Env"),
    (lambda: ENVS.PgxEnvironment("tic_tac_toe", hidden="no"), "hidden='no'"),
    (lambda: ENVS.JumanjiEnvironment(3), r"JumanjiEnvironment\(3\): give an id or"),
    (lambda: ENVS.BraxEnvironment(None), r"BraxEnvironment\(None\): give a name or"),
    (lambda: ENVS.BraxEnvironment("fast", bounds=("a", "b")), r"bounds=\('a', 'b'\)"),
    (lambda: ENVS.BraxEnvironment("fast", bounds=3), "bounds=3.*lowest and the highest"),
    (lambda: ENVS.PgxEnvironment("tic_tac_toe").init(key=None), "the key is None; give one"),
    (
        lambda: ENVS.PgxEnvironment("tic_tac_toe").init(key=jr.split(jr.key(0))),
        r"the key is .*\[2\]",
    ),
    (lambda: ENVS.testing.check_environment(Nim(), key=jr.key(0), num_steps=0), "num_steps=0"),
    (lambda: ENVS.testing.check_environment(Nim(), key=jr.key(0), num_envs=None), "num_envs=None"),
    (
        lambda: ENVS.Pendulum().step(
            ENVS.Pendulum().init(key=jr.key(0)), jnp.full(1, math.nan), key=jr.key(0)
        ),
        "Pendulum: the action is .*no NaN",
    ),
    (lambda: TRAIN.score_interval(POINTS, z=jnp.array([-1.0, 1.0])), r"score_interval\(z="),
    (lambda: TRAIN.score_interval(POINTS, z=jnp.float32(-1)), r"score_interval\(z=.*above 0"),
    (lambda: TRAIN.score_interval(POINTS, z=1e200), r"score_interval\(z=.*1e\+200.*0 to 100"),
    (lambda: TRAIN.fit_elo(np.eye(2), np.eye(2), anchor=0.5), r"anchor=0.5"),
    (lambda: TRAIN.fit_elo(np.zeros((2, 2)), np.zeros((2, 2)), prior="1"), "prior='1'"),
    (lambda: TRAIN.fit_elo(np.zeros((2, 2)), np.zeros((3, 3))), r"\[2, 2\] and games \[3, 3\]"),
    (lambda: TRAIN.fit_elo(np.zeros((2, 3)), np.zeros((2, 3))), "two tables of actors by actors"),
    (lambda: TRAIN.normalise_scores({"x": POINTS}, minimum=np.zeros(3)), "each of the 2 tasks"),
    (lambda: TRAIN.probability_of_improvement([1.0], [2.0]), r"scores of shape \(1,\)"),
    (lambda: TRAIN.aggregate(POINTS, num_resamples=9.5), "num_resamples=9.5"),
    (lambda: TRAIN.EloLadder("a").add_result("a", "b", 1, 1.5), "games=1.5"),
    (lambda: TRAIN.EloLadder("a").add_result("a", "b", 1, math.inf), "games=inf"),
    (lambda: TRAIN.aggregate(POINTS + 1j), "`scores` is of complex128; give real numbers"),
    (lambda: TRAIN.aggregate([[1.0], [1.0, 2.0]]), r"`scores` is \[\[1.0\], .*in every row"),
    (lambda: TRAIN.aggregate("ab"), "`scores` is .*give real numbers"),
    (lambda: TRAIN.aggregate(POINTS, confidence="a"), "confidence='a'"),
    (lambda: TRAIN.aggregate(POINTS, seed=1.5), "seed=1.5 was given; give an integer"),
    (lambda: TRAIN.stratified_bootstrap(None, POINTS), "statistic=None.*a function of scores"),
    (lambda: TRAIN.stratified_bootstrap(lambda x: x[..., 0, 0] * 1j, POINTS), "statistic.*complex"),
    (lambda: TRAIN.normalise_scores([POINTS]), "must be scores by the name of their algorithm"),
    (lambda: TRAIN.normalise_scores({"x": POINTS}, minimum="a"), "`minimum` is of <U1"),
    (lambda: TRAIN.performance_profile(POINTS, 1.0), "at least one number, none NaN"),
    (lambda: TRAIN.performance_profile(POINTS, [math.nan]), "at least one number, none NaN"),
    (lambda: TRAIN.score_interval("x"), "`points` is of <U1; give real numbers"),
    (lambda: TRAIN.fit_elo("a", "b"), "`scores` is of <U1"),
    (lambda: TRAIN.EloLadder("a").add_result("a", "b", "1", 1), "score='1'"),
    (lambda: TRAIN.EloLadder("a").add_result("a", ["b"], 1, 1), r"opponent=\['b'\].*name of an"),
    (lambda: APP.check_finite(3, {"a": "x"}), "`a` is of <U1; give real numbers"),
    (lambda: APP.check_finite(3, [1.0]), "must be numbers by name"),
    (lambda: APP.Results([1]), "must be a Result by its ResultKey"),
    (lambda: APP.Results().add(RETURN, **NAMES | {"task": None}), "the name None"),
    (lambda: APP.Results().add(RETURN, **NAMES | {"seed": 1.5}), "seed=1.5 was given"),
    (lambda: APP.Results().add(RETURN, **NAMES | {"step": "1"}), "step=1 was given"),
    (lambda: APP.Results().add({1: [1.0]}, **NAMES), "the name 1"),
    (lambda: APP.Results.from_json({1: {2: 3}}), "1, 2 is a int where an object should be"),
    (lambda: LOSSES.masked_mean(None, jnp.ones(2)), r"masked_mean\(x=\)` is None"),
    (lambda: LOSSES.td_learning_loss(*STEP, huber=jnp.float32(-1)), "huber=.*must be a number"),
    (lambda: LOSSES.q_learning_loss(None, 0, *STEP[:2], LOGITS), r"\(qvalues=\)` is None"),
    (lambda: LOSSES.q_learning_loss(LOGITS, 1.0, *STEP[:2], LOGITS), r"\(action=\)` is 1.0"),
    (lambda: LOSSES.q_learning_loss(LOGITS, True, *STEP[:2], LOGITS), r"\(action=\)` is True"),
    (lambda: LOSSES.q_learning_loss(np.ones(3) * 1j, 0, *STEP[:2], LOGITS), "is of complex128"),
    (lambda: RETURNS.lambda_returns(*ROWS, LOGITS, lambda_=1), r"\(last=\)` is of float"),
    (lambda: RETURNS.lambda_returns(*ROWS, "a", lambda_=1), r"\(last=\)` is 'a'; give booleans"),
    (lambda: RETURNS.lambda_returns(*ROWS, ENDS, lambda_=[2.0] * 3), "lambda_=.*0 to 1"),
    (lambda: LOSSES.masked_mean(LOGITS, LOGITS, total="1"), r"\(total=\)` is '1'"),
    (lambda: APP.check_finite(3, {"a": 10**400}), "`a` is of object; give real numbers"),
    (lambda: TRAIN.EloLadder(["a"]), r"anchor=\['a'\].*name of an actor"),
    (
        lambda: STATISTICS.normalise(jnp.zeros(2), max_abs=1j),
        "`max_abs` is 1j; it must be a finite",
    ),
    (lambda: STATISTICS.normalise(jnp.zeros(2), max_abs=[1.0]), r"`max_abs` is \[1.0\]; it must"),
    (lambda: LOSSES.Dual(None), r"Dual\(rho=None\)"),
    (lambda: LOSSES.Dual(jnp.ones(3)), r"Dual\(rho=.*must be finite"),
    (lambda: LOSSES.Dual.from_value("1"), r"from_value\(1\)"),
    (lambda: LOSSES.mpo_loss(LOGITS, ONE, *SAMPLED, **BOUNDS), "policy=.*a distribution"),
    (lambda: LOSSES.mpo_loss(ONE, ONE, None, *SAMPLED[1:], **BOUNDS), r"\(actions=\)` is None"),
    (lambda: LOSSES.mpo_loss(ONE, None, *SAMPLED, **BOUNDS), "target=None.*a distribution"),
    (lambda: LOSSES.quantile_regression_loss(LOGITS, [0, 0.5, 2], LOGITS), "fractions=.*0 to 1"),
    (lambda: LOSSES.categorical_projection(LOGITS, LOGITS, [-math.inf, 0, 1]), "atoms=.*finite"),
    (lambda: TRAIN.update_target({"a": LOGITS}, {"a": STEP[0]}, 1), r"'a'.*shape \(3,\) in the"),
    (lambda: TRAIN.update_target({"a": LOGITS}, {"b": LOGITS}, 1), "None in the parameters"),
    (lambda: TRAIN.init_optimiser(LOGITS, ADAM), "an optax transformation"),
    (lambda: NETS.LinearHead(3, 2, key=None), "`shape` is 2; it must be one or more sizes"),
    (lambda: NETS.MLP(3, 2, key=None), "`widths` is 2; it must be one or more sizes"),
    (lambda: NETS.CNN((9, 9, 1), channels=3, key=None), "`channels` is 3; it must be one or more"),
    (lambda: NETS.Dueling(3, None, key=None), "`shape` is None"),
    (lambda: NETS.MultiDiscreteHead(3, None, key=None), "`num_actions` is None"),
    (lambda: NETS.Concatenate()(LOGITS, np.ones(2) * 1j), "all of them real"),
    (lambda: NETS.ConcatenateOneHot(3)("a", 1), "`embedding` is 'a'; it must be an array"),
    (lambda: NETS.ConcatenateOneHot(3)(LOGITS, 1.0), "`action` is of float"),
    (lambda: NETS.orthogonal(LOGITS, key=None), "`layer` is a .*a Linear or a Conv"),
    (lambda: STATISTICS.update(jnp.ones((3, 2)), weights="a"), "'a' was given; give an array"),
    (lambda: CELL(LOGITS, None), r"shapes None, expected \(\(\(2,\).*give `init\(\)`"),
    (lambda: LOSSES.temperature_loss(LOGITS, 1.0, 0.1), "temperature=1.0.*a Dual"),
    (lambda: LOSSES.ppo_penalty_loss(*STEP, beta="a"), r"\(beta=\)` is 'a'"),
    (lambda: APP.Checkpoints("absent").save(0, jnp.ones(1), about=[1]), "a mapping of names"),
    (lambda: APP.Checkpoints("absent", keep=1.5), "keep=1.5"),
    (lambda: APP.Checkpoints("absent", keep=math.nan), "keep=nan"),
    (lambda: APP.Results().merge({}), "other={}.*must be Results"),
    (lambda: APP.check_finite(3, {"a": jnp.array([1.0, math.nan])}), "Step 3 gave a=nan"),
    (
        lambda: TRAIN.losses.masked_mean(jnp.ones(2, jnp.complex64), jnp.ones(2)),
        "is of complex64; give real numbers",
    ),
    (lambda: RETURNS.discounted_returns(*ROWS, None), r"\(last=\)` is None; give booleans"),
    (lambda: LOSSES.td_learning_loss(None, 1.0, 1.0, 1.0), r"\(value=\)` is None; give real"),
    (lambda: TRAIN.data_mesh("2"), "num_devices='2'"),
    (lambda: TRAIN.data_mesh(2, fsdp=1.5), "fsdp=1.5"),
    (lambda: TRAIN.BestSoFar.start(POINTS).update(POINTS, None, 1), "score=None"),
    (lambda: TRAIN.BestSoFar.start(POINTS).update(POINTS, 1.0, np.zeros(2)), "step=array"),
    (
        lambda: TRAIN.rollout(Nim(), TREE, num_steps=1, num_envs=1, key=jr.key(0)),
        "actor=.*must be an actor",
    ),
    (lambda: TRAIN.init(None, key=jr.key(0)), "loop=None.*must be a zero_train.Loop"),
    (lambda: TRAIN.fill(None, 0), "state=0.*what `zero_train.init`"),
    (lambda: TRAIN.step(None, 0), "state=0.*what `zero_train.init`"),
    (lambda: NETS.Categorical(None), "None was given; give an array of numbers"),
    (lambda: NETS.Categorical(["a"]), "was given; give an array of numbers"),
    (lambda: ONE.kl(TWO), "Categorical to Gaussian"),
    (lambda: TWO.kl(ONE), "Gaussian to Categorical"),
    (lambda: PAIR.kl(ONE), "MultiDiscrete to Categorical"),
    (lambda: ONE.log_prob(jnp.float32(1)), "`action` is of float"),
    (lambda: ONE.log_prob(1.5), "`action` is of float64"),
    (lambda: ONE.log_prob("1"), "`action` is '1'; it must be an array"),
    (lambda: PAIR.log_prob(jnp.zeros(3, jnp.int32)), r"has shape \(3,\), expected \(2,\)"),
    (lambda: TWO.log_prob([0.0, 1.0]), "must be an array"),
    (lambda: NETS.BoardSymmetries(3, 3, 9, places=[(0, 1)]), "a tuple of pairs"),
    (lambda: NETS.BoardSymmetries(3, 3, 9, places=(1, 2)), "a tuple of pairs"),
    (lambda: NETS.BoardSymmetries(3, 3, 9, places=((0, -1),)), "`column` is -1"),
    (lambda: STATISTICS.normalise(jnp.zeros(2), max_abs=-1), "`max_abs` is -1"),
    (lambda: STATISTICS.normalise(jnp.zeros(2), max_abs=math.nan), "`max_abs` is nan"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_what_a_call_cannot_take_is_named(number):
    call, message = CALLS[number]
    with pytest.raises(ValueError, match=message):
        call()


def test_numbers_and_lists_are_taken_for_arrays():
    assert NETS.Categorical([0.0, 1.0]).log_prob(1) == NETS.Categorical(jnp.arange(2.0)).log_prob(1)
    assert NETS.Gaussian(0.0, 1).mode() == 0
    q = [0.5, 1.0, 2.0]
    loss = LOSSES.q_learning_loss(jnp.array(q), jnp.int32(2), *STEP[:2], jnp.array(q))
    for kind in (list, tuple, np.array):
        x = kind(q)
        assert LOSSES.q_learning_loss(x, 2, *STEP[:2], x) == loss
        traced = jax.jit(ft.partial(LOSSES.q_learning_loss, x))
        assert traced(2, *STEP[:2], x) == loss
        found = RETURNS.lambda_returns(x, x, x, kind([0, 0, 1]), lambda_=1)
        assert jnp.array_equal(found, RETURNS.lambda_returns(*(jnp.array(q),) * 3, ENDS, lambda_=1))
    listed, _ = LOSSES.mpo_loss(ONE, ONE, *(x.tolist() for x in SAMPLED), **BOUNDS)
    assert listed == LOSSES.mpo_loss(ONE, ONE, *SAMPLED, **BOUNDS)[0]
    assert LOSSES.td_learning_loss(1, 2, 3, 4) == 84.5
    assert jax.jit(lambda x: LOSSES.masked_mean([x, 3.0], [1.0, x]))(1.0) == 2


class Odd(TRAIN.AbstractActor):
    """An actor of which one method returns something else."""

    act_returns: Any = lambda action, carry: (action, None, carry)
    advance_returns: Any = lambda carry: carry

    def init(self, state):
        return None

    def act(self, state, obs, carry, *, key):
        return self.act_returns(jnp.zeros(obs.legal.shape[0], jnp.int32), carry)

    def advance(self, carry, action, transition):
        return self.advance_returns(carry)


PLAYED = {"num_games": 2, "max_steps": 4, "key": jr.key(0)}
PLAYERS: list[tuple[dict[str, Any], str]] = [
    ({"env": "nim"}, r"match\(env='nim'\)`: must be an environment"),
    ({"env": Nim}, "must be an environment"),
    ({"first": None}, r"match\(first=None\)`: must be an actor"),
    ({"second": TREE}, r"second=.*an actor, such as a `zero_train.PlanningActor`"),
    ({"second": TRAIN.RandomActor}, "second=.*an actor"),
    ({"mesh": "cpu"}, "mesh='cpu'.*must be a mesh"),
    ({"opening_plies": "2"}, "opening_plies='2'"),
    ({"opening_plies": 1.5}, "opening_plies=1.5"),
    ({"first": Odd(lambda action, carry: None)}, "`Odd.act` returned NoneType; give three"),
    ({"first": Odd(lambda action, carry: action)}, "give three: `action, record, carry`"),
    ({"first": Odd(lambda action, carry: (None, None, carry))}, "`Odd.act` returned actions of"),
    ({"first": Odd(lambda action, carry: (action[0], None, carry))}, "actions of shape .*give one"),
    ({"first": Odd(lambda action, carry: (action, None, action))}, "`Odd.act` turned a carry"),
    ({"first": Odd(advance_returns=lambda carry: jnp.zeros(2))}, "`Odd.advance` turned a carry"),
]


@pytest.mark.parametrize("number", range(len(PLAYERS)))
def test_what_cannot_play_is_named(number):
    bad, message = PLAYERS[number]
    random = train.RandomActor()
    with pytest.raises(ValueError, match=message):
        TRAIN.match(**{"env": Nim(), "first": random, "second": random} | PLAYED | bad)
    bad = {"actor" if name in ("first", "second") else name: x for name, x in bad.items()}
    if "opening_plies" not in bad:
        message = message.replace("match", "evaluate").replace("first", "actor")
        given = {"num_episodes": 2, "max_steps": 4, "key": jr.key(0)}
        with pytest.raises(ValueError, match=message.replace("second", "actor")):
            TRAIN.evaluate(**{"env": Nim(), "actor": random} | given | bad)


@pytest.mark.parametrize("rate", [2, -0.1, math.nan, "1"])
def test_a_target_moves_between_where_it_is_and_the_parameters(rate):
    with pytest.raises(ValueError, match=r"`update_target\(rate=.*0 to 1"):
        train.update_target(jnp.zeros(2), jnp.ones(2), rate)


@pytest.mark.parametrize(
    "line", [("x",), (1.5,), (True,), (2**62,), (1, {"step": 2}), (1, {"a": {1, 2}})]
)
def test_lines_that_would_not_be_read_are_not_written(line, tmp_path):
    log = app.JsonLines(tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match=r"`JsonLines\.log|step=.* was given"):
        log.log(line[0], *(line[1:] or ({"a": 1},)))
    log.log(1, {"a": 2})
    log.close()
    assert app.read_lines(log.path) == [{"step": 1, "a": 2}]


@pytest.mark.parametrize("weights", [[0.0, math.nan], [-1.0, 1.0]])
def test_weights_that_are_none_choose_no_action(weights):
    for heat in (0.0, 1.0):
        keys = jr.split(jr.key(0), 1)
        assert search.sample_action(jnp.array([weights]), heat, key=keys) == -1
