"""The command line: `othello train|eval|play|serve|watch|gtp|report`."""

import functools as ft

from zero_train.app import App, expects_accelerator, main as run_main

from ._build import build_loop
from ._config import PRESETS
from ._eval import Eval
from ._gtp import Gtp
from ._ladder import evaluation
from ._play import Play
from ._report import page
from ._serve import Serve
from ._watch import episode, Watch


APP = App(
    name="othello",
    about="Train an AlphaZero player of Othello and play against it.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    commands={"eval": Eval, "play": Play, "serve": Serve, "watch": Watch, "gtp": Gtp},
    preset="standard" if expects_accelerator() else "quick",
)

main = ft.partial(run_main, APP)


if __name__ == "__main__":
    main()
