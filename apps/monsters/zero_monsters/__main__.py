"""The command line: `monsters plan|train|eval|watch|report`."""

import functools as ft

from zero_train.app import App, main as run_main

from ._build import build_loop
from ._config import PRESETS
from ._eval import Eval, evaluation
from ._plan import Plan
from ._report import page
from ._watch import episode, Watch


APP = App(
    name="monsters",
    about="Planning where the world is random.",
    presets=PRESETS,
    build=build_loop,
    evaluation=evaluation,
    page=page,
    episode=episode,
    commands={"plan": Plan, "eval": Eval, "watch": Watch},
    preset="default",
)

main = ft.partial(run_main, APP)


if __name__ == "__main__":
    main()
