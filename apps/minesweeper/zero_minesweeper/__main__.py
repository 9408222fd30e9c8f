"""The command line: `minesweeper train|eval|compare|watch|play|report`."""

import functools as ft

from zero_train.app import App, main as run_main

from ._build import build_loop
from ._compare import Compare
from ._config import PRESETS
from ._eval import Eval, evaluation
from ._play import Play
from ._report import page
from ._watch import episode, Watch


APP = App(
    name="minesweeper",
    about="Minesweeper, played without observing the mines.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    commands={"eval": Eval, "compare": Compare, "watch": Watch, "play": Play},
)

main = ft.partial(run_main, APP)


if __name__ == "__main__":
    main()
