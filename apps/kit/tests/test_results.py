"""Results on disk: nothing is lost, nothing is overwritten, and marl-eval reads the same."""

import json

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import Result, Results, RunError, RunFolder, StoredRun
from zero_envs.testing import Corridor
from zero_train import evaluate, RandomActor


def name(task: str = "ant", algorithm: str = "spo", seed: int = 0) -> dict:
    return dict(environment="brax", task=task, algorithm=algorithm, seed=seed)


def values(*numbers: float) -> dict[str, np.ndarray]:
    return {"return": np.array(numbers)}


def study(seeds: int = 3) -> Results:
    """Two algorithms on two tasks, two evaluations and the absolute metric a run."""
    results = Results()
    for algorithm, bonus in (("spo", 1.0), ("mpo", 0.0)):
        for task, scale in (("ant", 10.0), ("humanoid", 100.0)):
            for seed in range(seeds):
                run = name(task, algorithm, seed)
                for step, progress in ((1000, 0.5), (2000, 1.0)):
                    mean = scale * (progress + bonus + seed)
                    results = results.add(values(mean - 1, mean + 1), step=step, **run)
                absolute = scale * (1.0 + bonus + seed) - 0.5
                results = results.add(values(*[absolute] * 4), step=None, **run)
    return results


def test_the_layout_is_marl_evals():
    """README of instadeepai/marl-eval, "Data Structure for Raw Experiment data"."""
    results = (
        Results()
        .add(values(5.0, 6.0), step=None, **name())
        .add(values(2.0, 4.0), step=2000, elapsed_time=7.5, **name())
        .add({"return": jnp.array([0.1, 1.0]), "solved": np.array([False, True])}, step=0, **name())
        .add(values(3.0), step=1000, **name(seed=10))
        .add(values(3.0), step=1000, **name(seed=9))
    )
    assert json.loads(json.dumps(results.to_json())) == {
        "brax": {
            "ant": {
                "spo": {
                    "seed_0": {
                        "step_0": {"step_count": 0, "return": [0.1, 1.0], "solved": [0, 1]},
                        "step_1": {"step_count": 2000, "elapsed_time": 7.5, "return": [2.0, 4.0]},
                        "absolute_metrics": {"return": [5.0, 6.0]},
                    },
                    "seed_9": {"step_0": {"step_count": 1000, "return": [3.0]}},
                    "seed_10": {"step_0": {"step_count": 1000, "return": [3.0]}},
                }
            }
        }
    }
    # marl-eval takes the last entry of a run for its absolute metric, and seeds in file order.
    runs = results.to_json()["brax"]["ant"]["spo"]
    assert list(runs) == ["seed_0", "seed_9", "seed_10"]
    assert list(runs["seed_0"]) == ["step_0", "step_1", "absolute_metrics"]
    assert Results.from_json(results.to_json()) == results


def test_files_of_other_programs_are_read():
    """Runs of any name, steps from 1 on, `absolute_metric`, an unfinished run's empty one."""
    steps = {"step_1": {"step_count": 5, "return": [1]}, "step_2": {"step_count": 9, "return": [2]}}
    runs = {
        "run_1": {**steps, "absolute_metric": {"return": [3, 4]}},
        "43289": {"absolute_metrics": {}, **steps},
    }
    results = Results.from_json({"smac": {"3s5z": {"QMIX": runs}}})
    assert {(key.run, key.step): result for key, result in results.entries.items()} == {
        ("run_1", 5): Result({"return": (1,)}),
        ("run_1", 9): Result({"return": (2,)}),
        ("run_1", None): Result({"return": (3, 4)}),
        ("43289", 5): Result({"return": (1,)}),
        ("43289", 9): Result({"return": (2,)}),
    }
    steps, scores = results.curves("smac", "return")["QMIX"]
    np.testing.assert_array_equal(steps, [5, 9])
    np.testing.assert_array_equal(scores, [[[1], [1]], [[2], [2]]])


# ---- files


def test_a_file_gains_and_never_loses(tmp_path):
    path = tmp_path / "results.json"
    whole = study()
    parts = [Results({k: r}) for k, r in whole.entries.items()]
    for part in np.random.default_rng(0).permutation(len(parts)):
        parts[part].write(path)
    assert Results.read(path) == whole
    assert [x.name for x in tmp_path.iterdir()] == ["results.json"]
    before = path.read_bytes()
    # The same again is nothing new.
    parts[0].write(path)
    assert path.read_bytes() == before
    message = (
        r"was left as it is: brax, ant, spo, seed_0, step 1000: return is there already with mean "
        r"15 \(episodes: 2\); mean 7 \(episodes: 1\) was refused"
    )
    with pytest.raises(RunError, match=message):
        Results().add(values(7.0), step=1000, **name()).write(path)
    assert path.read_bytes() == before


def test_seeds_files_merge():
    one, two = (Results().add(values(float(s)), step=1, **name(seed=s)) for s in (1, 2))
    assert one.merge(two) == two.merge(one) != one
    assert set(one.merge(two).entries) == set(one.entries) | set(two.entries)
    more = one.add({"length": np.array([9])}, step=1, elapsed_time=3.0, **name(seed=1))
    (result,) = more.entries.values()
    assert result == Result({"return": (1.0,), "length": (9,)}, 3.0)
    later = more.add(values(1.0), step=1, elapsed_time=4.0, **name(seed=1))
    assert later == more
    assert one == Results().add(values(1.0), step=1, **name(seed=1))  # nothing was changed in place


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1]", "the whole is a list where an object should be"),
        ('{"a": {"b": {"c": {"seed_0": [1]}}}}', "a, b, c, seed_0 is a list"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"return": [1]}}}}}}', "a, b, c, d, step_0 has the "
         "step_count None"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"step_count": -1}}}}}}', "an integer from 0 on"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"step_count": 1, "elapsed_time": "1 s"}}}}}}',
         "elapsed_time '1 s'; it must be seconds"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"step_count": 1, "return": 1}}}}}}',
         "return must be a list"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"step_count": 1, "return": [NaN]}}}}}}',
         r"return\[0\] is nan"),
        ('{"a": {"b": {"c": {"d": {"step_0": {"step_count": 1, "x": [1]}, '
         '"step_1": {"step_count": 1, "x": [2]}}}}}}', "step 1: x is there already"),
        ("{", "Expecting property name"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_results_is_named_and_kept(tmp_path, text, message):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(RunError, match=rf"results.json holds no results.*{message}"):
        Results.read(path)
    with pytest.raises(RunError):
        study(1).write(path)
    assert path.read_text() == text
    with pytest.raises(RunError, match="absent.json cannot be read"):
        Results.read(tmp_path / "absent.json")
    with pytest.raises(RunError, match="cannot be written"):
        study(1).write(tmp_path / "absent" / "results.json")


@pytest.mark.parametrize(
    "metrics, changes, message",
    [
        (values(1.0, np.nan), {}, r"brax, ant, spo, seed_0, step 1: return\[1\] is nan"),
        (values(np.inf), {}, r"return\[0\] is inf"),
        (values(), {}, "return must be a list of at least one number"),
        ({"step_count": np.ones(1)}, {}, "step_count cannot be a metric's name"),
        (values(1.0), dict(algorithm="a,b"), "'a,b' has a comma"),
        (values(1.0), dict(step=-1), "step=-1 was given"),  # `BestSoFar.step` at the start
    ],
)
def test_what_marl_eval_could_not_read_is_refused(metrics, changes, message):
    with pytest.raises(ValueError, match=message):
        Results().add(metrics, **(dict(step=1) | name() | changes))


def test_names_that_marl_eval_takes_for_one_are_refused():
    results = Results().add(values(1.0), step=1, **name()).add(values(2.0), step=1, **name("Ant"))
    with pytest.raises(ValueError, match="ant and Ant|Ant and ant differ in case only"):
        results.to_json()


# ---- matrices


def test_scores_are_rliables_matrices():
    results = study()
    assert results.tasks("brax") == ["ant", "humanoid"]
    scores = results.scores("brax", "return")
    assert set(scores) == {"spo", "mpo"}
    np.testing.assert_allclose(scores["spo"], [[19.5, 199.5], [29.5, 299.5], [39.5, 399.5]])
    np.testing.assert_allclose(scores["mpo"], [[9.5, 99.5], [19.5, 199.5], [29.5, 299.5]])
    last = results.scores("brax", "return", last=True)
    np.testing.assert_allclose(last["spo"], [[20.0, 200.0], [30.0, 300.0], [40.0, 400.0]])
    steps, curve = results.curves("brax", "return")["mpo"]
    np.testing.assert_array_equal(steps, [1000, 2000])
    expected = [[[5, 50], [15, 150], [25, 250]], [[10, 100], [20, 200], [30, 300]]]
    np.testing.assert_allclose(curve, expected)


@pytest.mark.parametrize(
    "change, call, message",
    [
        (None, dict(environment="atari"), "no results of 'atari', only of .'brax'"),
        (None, dict(metric="solved"), "mpo, ant, seed_0 has no absolute metric 'solved'"),
        (None, dict(metric="solved", last=True), "mpo, ant, seed_0 has no evaluation with"),
        (dict(seed=3), {}, "spo has different numbers of runs: 4 of ant, 3 of humanoid"),
        (dict(task="reacher"), {}, "mpo has different numbers of runs: .* 0 of reacher"),
        (
            dict(step=2500),
            dict(last=True),
            r"ant, seed_1 was evaluated at \[2000\], .* at \[2500\]",
        ),
    ],
)
def test_runs_that_do_not_compare_are_named(change, call, message):
    results = study()
    if change is not None:
        results = results.add(values(1.0), **(dict(step=None) | name() | change))
    with pytest.raises(ValueError, match=message):
        results.scores(**(dict(environment="brax", metric="return") | call))


def test_curves_need_the_same_steps():
    results = study().add(values(1.0), step=3000, **name(seed=2))
    with pytest.raises(ValueError, match=r"seed_2 was evaluated at \[1000, 2000, 3000\], other"):
        results.curves("brax", "return")


# ---- from a run


def test_the_episodes_of_a_run_become_results(tmp_path):
    """As docs/evaluation.md says it, of a run of one's own: a log survives whatever stops it."""
    config, returns = {"env": "testing/corridor", "seed": 7, "envs": 10, "unroll": 5}, []
    with RunFolder.create(tmp_path / "run", config) as folder:
        for step in (1, 2):
            result = evaluate(
                Corridor(3), RandomActor(), num_episodes=16, max_steps=4, key=jr.key(step)
            )
            returns.append(np.asarray(result.returns))
            folder.log_evaluation(step, {}, episodes=[result.metrics(solved_at=1.0)])
    results = StoredRun.read(tmp_path / "run").results("random")
    assert {key.run for key in results.entries} == {"seed_7"}
    steps, curve = results.curves("testing", "return")["random"]
    np.testing.assert_array_equal(steps, [50, 100])
    np.testing.assert_allclose(curve[:, 0, 0], np.mean(returns, axis=1), rtol=1e-6)
    solved = results.scores("testing", "solved", last=True)["random"]
    assert solved == returns[1].mean()
