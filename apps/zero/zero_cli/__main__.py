"""The command line: `zero train|sweep|eval|play|serve|gtp|watch|compare|list|report|export`.

JAX takes seconds to import, so help and an unknown command are answered without it.
"""

import contextlib
import re
import sys


#: What `zero --help` prints. A test holds it against the commands.
HELP = """\
usage: zero COMMAND [flags]

Train, measure and play any game.

  train ENV    train a player; --out is its run folder, by default in runs/
  sweep ENV    search for the flags with which training ends best
  play RUN     play against a trained player in the terminal
  serve RUN    play against a trained player in the browser
  gtp RUN      serve a player of Go or Othello over the Go Text Protocol,
               version 2, on stdin and stdout
  watch RUN    watch a trained player alone, or against itself
  list [NAME]  list the environments, with the number of players and the agents
               that can play each
  eval RUN     measure a trained player: its score in games of two players, or
               else its mean return
  compare RUNS compare runs, in the terminal and as a page: the flags in which
               they differ, their last evaluations and their curves
  report RUN   write the report of a run anew, with games of its players to step
               through
  export RUN   write a trained player for use without this package

`zero COMMAND --help` lists the flags."""


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    names = re.findall("^  ([a-z]+) ", HELP, re.MULTILINE)
    if name in ("", "-h", "--help"):
        with contextlib.suppress(OSError):  # said below, as for every command
            return print(HELP, flush=True)
    elif re.fullmatch("[a-z-]+", name) and name not in names:
        said = f"zero: no command is called {name!r}; choose one of {', '.join(names)}."
        print(said, file=sys.stderr)
        sys.exit(2)
    from . import _main

    _main.main(sys.argv[1:])


if __name__ == "__main__":
    main()
