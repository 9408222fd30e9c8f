"""What an app is made of around the loop: a command line, a run from start to end, its report.

Needs the extra `app` of zero-train.
"""

import importlib.util


_MISSING = [
    name
    for name in ("matplotlib", "rich", "tensorboardX", "tyro")
    if importlib.util.find_spec(name) is None
]
if _MISSING:
    raise ImportError(f"zero_train.app needs {', '.join(_MISSING)}: install zero-train[app].")

from ._command import (
    Command as Command,
    main as main,
    parse as parse,
    parse_run as parse_run,
    peek as peek,
)
from ._config import (
    check_bounds as check_bounds,
    load_config as load_config,
    load_player as load_player,
    Options as Options,
    RunConfig as RunConfig,
    SEEDS as SEEDS,
)
from ._errors import (
    as_usage_error as as_usage_error,
    UsageError as UsageError,
)
from ._page import (
    chart as chart,
    charts as charts,
    configuration as configuration,
    figures as figures,
    picture as picture,
    table as table,
    tables as tables,
    write_page as write_page,
)
from ._recorded import (
    imitation as imitation,
    progress as progress,
    Recorded as Recorded,
    speed as speed,
)
from ._run import (
    AbstractRun as AbstractRun,
    Records as Records,
    Standing as Standing,
)
from ._series import (
    curve as curve,
    MAX_SERIES as MAX_SERIES,
    Series as Series,
)
from ._sinks import (
    TensorBoardSink as TensorBoardSink,
    WandbSink as WandbSink,
)
from ._start import (
    expects_accelerator as expects_accelerator,
    start_jax as start_jax,
)
from ._train import train as train
from ._view import View as View
