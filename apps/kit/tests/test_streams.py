"""Standard streams that are closed, full or of the wrong kind, and devices that are not there: a
command says so in a line, and writes nothing where it does not belong."""

import json
import subprocess
import sys

import pytest


# Each case is a process of its own, forked from one that has imported everything.
PROGRAM = """
import dataclasses, json, os, pathlib, sys, warnings
import jax
import rich.console
from zero_app import AbstractCommand, AbstractConfig, App, Dialogue, main, UsageError
from zero_app._play._gtp import serve_lines

warnings.simplefilter("ignore")
folder = pathlib.Path(sys.argv[1])

def ask():
    dialogue = Dialogue(
        rich.console.Console(), input, others=[], answer=lambda line: None, commands={}
    )
    with dialogue.leaving():
        while True:
            dialogue.turn("> ")

def gtp():
    serve_lines(start, "some", "1", sys.stdin, lambda line: print(line, end="", flush=True))

def fail():
    raise UsageError("it is wrong.")

def save():
    with (folder / "saved").open("w") as file:
        file.write("saved")
        file.flush()
        for number in range(3):
            try:
                os.write(number, b"noise")
            except OSError:
                pass

def command(about, call):
    class Command(AbstractCommand):
        def __call__(self, app):
            call()

    Command.__doc__ = about
    return dataclasses.dataclass(frozen=True)(Command)

from types import SimpleNamespace
import zero_app._play._gtp as of_gtp
start = None
of_gtp.GtpEngine = lambda *given, **more: SimpleNamespace(running=True)
calls = {"ask": ask, "gtp": gtp, "fail": fail, "save": save,
         "say": lambda: print("said"), "devices": lambda: jax.devices()}
app = App("app", "Some.", {"default": AbstractConfig()}, lambda config: None,
          commands={name: command("It does.", call) for name, call in calls.items()})

def opened(number, how):
    os.close(number)
    if how == "closed":
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    elif how == "full":
        assert os.open("/dev/full", os.O_WRONLY) == number
    elif how == "empty":
        assert os.open("/dev/null", os.O_RDONLY) == number
    else:
        assert os.open(str(folder / "other"), os.O_WRONLY | os.O_CREAT) == number

def case(words, streams, platforms):
    reads = [os.pipe(), os.pipe()]
    child = os.fork()
    if child == 0:
        for number, (_, write) in enumerate(reads, 1):
            os.dup2(write, number)
        for pair in reads:
            os.close(pair[0]), os.close(pair[1])
        for number, how in sorted(streams.items(), key=lambda x: -int(x[0])):
            opened(int(number), how)
        if platforms:
            jax.config.update("jax_platforms", platforms)
        code = 0
        try:
            main(app, words)
        except SystemExit as e:
            code = e.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    for _, write in reads:
        os.close(write)
    said = [open(read).read() for read, _ in reads]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, *said

print(json.dumps([case(*given) for given in json.loads(sys.argv[2])]))
"""
READ, WRITTEN = (f"app: standard {x} cannot be" for x in ("input", "output"))
CASES = {
    "nothing to read": (["ask"], {0: "closed"}, "", (0, "\nYou left the game.\n", "")),
    "nothing to serve": (["gtp"], {0: "closed"}, "", (0, "", "")),
    "input for writing": (["ask"], {0: "other"}, "", (2, "", f"{READ} read (Bad file descriptor)")),
    "output for nobody": (["say"], {1: "closed"}, "", (0, "", "")),
    "output is full": (["say"], {1: "full"}, "", (2, "", f"{WRITTEN} written (No space left on")),
    "help is full": (["say", "--help"], {1: "full"}, "", (2, "", f"{WRITTEN} written (No space")),
    "list is full": (["--help"], {1: "full"}, "", (2, "", f"{WRITTEN} written (No space left on")),
    "nobody hears": (["fail"], {2: "closed"}, "", (2, "", "")),
    "errors are full": (["fail"], {2: "full"}, "", (2, "", "")),
    "both are full": (["say"], {1: "full", 2: "full"}, "", (2, "", "")),
    "wrong, and full": (["fail"], {1: "full"}, "", (2, "", "app: it is wrong.")),
    "all closed": (["save"], {0: "closed", 1: "closed", 2: "closed"}, "", (0, "", "")),
    "no such device": (["devices"], {0: "empty"}, "cuda", (2, "", "app: JAX_PLATFORMS=cuda was")),
    "no such platform": (["devices"], {}, "nonsense", (2, "", "app: JAX_PLATFORMS=nonsense was")),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    given = json.dumps([case[:3] for case in CASES.values()])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), given], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder, dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
@pytest.mark.parametrize("name", CASES)
def test_a_stream_or_a_device_that_is_not_there_is_one_line(ends, name):
    folder, found = ends
    code, out, err = found[name]
    expected_code, expected_out, expected_err = CASES[name][3]
    assert code == expected_code, err
    assert out.endswith(expected_out) and err.startswith(expected_err), (out, err)
    assert err.count("\n") == bool(expected_err), err
    if name == "all closed":
        assert (folder / "saved").read_text() == "saved"
