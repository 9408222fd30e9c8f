"""The canary: with the import hook or a strict mode off, many other tests would see nothing."""

import importlib
import os
import warnings

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from . import workspace


def test_a_wrong_shape_is_caught():
    import zero_envs

    scalar, last = jnp.zeros(()), jnp.zeros((), dtype=bool)
    zero_envs.Transition(reward=scalar, discount=scalar, last=last)
    with pytest.raises(TypeCheckError):
        zero_envs.Transition(reward=scalar, discount=jnp.zeros(3), last=last)


@pytest.mark.parametrize("member", workspace.MEMBERS, ids=lambda member: member.name)
def test_every_member_is_under_the_hook(member):
    package = importlib.import_module(workspace.import_name(member))
    assert type(package.__loader__).__module__.startswith("jaxtyping")


def test_mixed_dtypes_are_an_error():
    with pytest.raises(Exception, match="no available implicit dtype promotion path"):
        _ = jnp.zeros(2, jnp.int32) + jnp.zeros(2, jnp.float32)


def test_mixed_ranks_are_an_error():
    with pytest.raises(ValueError, match="rank"):
        _ = jnp.zeros((2, 3)) + jnp.zeros(3)


def twice(key):
    return jax.random.normal(key) + jax.random.normal(key)


def by_program(key):
    draw = jax.jit(jax.random.normal)
    return draw(key) + draw(key)


def closed_over(key):
    draw = jax.jit(lambda: jax.random.normal(key))
    return draw() + draw()


def made_inside(key):
    del key
    return jax.jit(lambda seed: twice(jax.random.key(seed)))(0)


def made_in_a_loop(key):
    del key
    seeds = jnp.arange(2, dtype=jnp.uint32)
    return jax.lax.scan(lambda x, seed: (x, twice(jax.random.key(seed))), 0, seeds)


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="the check is off: see conftest.py")
@pytest.mark.parametrize(
    "use", [twice, jax.jit(twice), by_program, closed_over, made_inside, made_in_a_loop]
)
def test_a_reused_key_is_an_error(getkey, use):
    """Also where no key goes in or out, which conftest.py has a short way for."""
    with pytest.raises(jax.errors.KeyReuseError):
        use(getkey())


def test_a_warning_is_an_error():
    with pytest.raises(UserWarning):
        warnings.warn("anything", stacklevel=1)


def test_there_are_eight_devices():
    assert len(jax.devices("cpu")) == 8


def test_fast_tests_compile_in_haste(pytestconfig):
    """Without this flag they take three times as long, which nothing else would tell."""
    if pytestconfig.option.markexpr == "not slow":
        assert "--xla_backend_optimization_level=0" in os.environ["XLA_FLAGS"].split()


def test_flags_that_xla_does_not_know_are_left_out(known_flags, tmp_path, monkeypatch):
    """XLA ends a process that is given one: a new JAX would end every test. What was found out is
    kept beside the compiled programs."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    known = "--xla_backend_optimization_level=0"
    assert known_flags("--xla_no_such_flag=1", known, "--xla_nor_this_one=2") == (known,)
    monkeypatch.setattr("subprocess.run", None)
    assert known_flags("--xla_no_such_flag=1", known, "--xla_nor_this_one=2") == (known,)
