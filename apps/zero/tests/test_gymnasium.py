"""Training in simulators that run on the host, by the command."""

import json
import shutil

import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from zero_app import read_lines


#: Networks of a few numbers, and steps of a few rows.
SMALL = {
    "ppo": "--steps 32 --envs 4 --shards 2 --unroll 4 --length 5 --batch 2 --updates 2 --width 8 "
    "--layers 1 --episodes 4",
    "muzero": "--steps 2 --envs 4 --shards 2 --unroll 4 --batch 4 --updates 1 --channels 2 "
    "--blocks 1 --simulations 2 --player-simulations 2 --capacity 32 --games 4 --max-moves 12 "
    "--model-steps 1 --n-steps 2 --consistency 0 --reanalyse 0",
}


@pytest.fixture
def running(monkeypatch):
    """The simulators that were opened and are not closed."""
    found, begin, close = set(), CartPoleVectorEnv.reset, CartPoleVectorEnv.close
    reset = lambda self, **options: found.add(self) or begin(self, **options)
    monkeypatch.setattr(CartPoleVectorEnv, "reset", reset)
    monkeypatch.setattr(
        CartPoleVectorEnv, "close", lambda self, **_: found.discard(self) or close(self)
    )
    return found


@pytest.mark.parametrize("agent", SMALL)
def test_a_run_is_resumed_and_measured(agent, zero, tmp_path, without_charts, running):
    out, name = tmp_path / agent, "gymnasium/CartPole-v1"
    words = ["--agent", agent, "--preset", "tiny", *SMALL[agent].split(), "--out", out]
    words += ["--evaluate-every", 2, "--checkpoint-every", 1]
    with without_charts():
        code, _, err = zero("train", name, *words)
        assert code == 0, err
        rows = read_lines(out / "metrics.jsonl")
        assert [row["step"] for row in rows] == [1, 2]
        # As if it had been killed in its second step.
        shutil.rmtree(out / "checkpoints" / "00000002")
        code, printed, err = zero("train", name, *words, "--resume")
        assert code == 0, err
    assert f"the simulators of {name} cannot be saved: all running episodes begin anew" in printed
    first, second = read_lines(out / "metrics.jsonl")
    assert first == rows[0] and second["step"] == 2
    assert rows[1]["cut"] == 0 < second["cut"] and not running
    # The first row of every environment is the end of its episode.
    assert second["games"] - first["games"] >= 4
    (row,) = read_lines(out / "evaluations.jsonl")
    assert row["return_mean"] == row["length_mean"] > 1
    code, printed, err = zero("eval", out, "--games", 4, "--json")
    assert code == 0 and json.loads(printed)["episodes"] == 4, err
    code, printed, err = zero("watch", out)
    assert code == 0 and "return" in printed and not running, err
    if agent == "muzero":
        code, _, err = zero("export", out, "--simulations", 2, "--out", tmp_path / "exported")
        assert code == 2 and f"the simulator of {name} runs on the host" in err


@pytest.mark.parametrize(
    "words, said",
    [
        ("gymnasium/CartPole-v1 --agent spo", "cannot be copied to plan in; give one of ppo, vmpo"),
        ("gymnasium/CartPole-v1 --agent alphazero", "to plan in; give one of ppo, vmpo, mpo, muz"),
        ("gymnasium/CartPol-v1", "Did you mean gymnasium/CartPole-v1"),
        ("ale/Breakou", "Did you mean ale/Breakout"),
        ("gymnasium/nowhere:Toy-v0", "No module named 'nowhere'"),
        ("gymnasium/CartPole-v1 --agent ppo --preset tiny --shards 2 --devices 2 --actor-devices 1",
         "--actor-devices 1 was given with 1 process(es) for gymnasium/CartPole-v1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words, said, zero, tmp_path):
    code, _, err = zero("train", *words.split(), "--out", tmp_path / "run")
    assert code == 2 and said in err and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()


def test_what_is_said_of_one_environment(zero):
    """Also of an id that a module registers, which is not known before it is made."""
    code, out, err = zero("list", "gymnasium/gymnasium:CartPole-v1")
    assert code == 0 and "agents       ppo, vmpo, mpo, muzero, stochastic\n" in out, err
    code, out, _ = zero("list", "ale/Breakout")
    assert code == 0 and "28,224 numbers: [84, 84, 4]" in out


@pytest.mark.slow
def test_ppo_learns_cartpole(zero, tmp_path):
    out = tmp_path / "run"
    code, _, err = zero(
        "train", "gymnasium/CartPole-v1", "--agent", "ppo", "--preset", "quick", "--out", out
    )
    assert code == 0, err
    assert read_lines(out / "evaluations.jsonl")[-1]["return_mean"] > 450
