"""The command line: `minesweeper train|eval|compare|watch|play|serve|report|export`."""

import functools as ft

from zero_app import main as run_main

from ._app import APP


main = ft.partial(run_main, APP)


if __name__ == "__main__":
    main()
