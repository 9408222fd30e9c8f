"""The parts of an app besides its loop: the command line, the run and the report.

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
    expects_accelerator as expects_accelerator,
    main as main,
    parse as parse,
    parse_run as parse_run,
    peek as peek,
    start_jax as start_jax,
)
from ._config import (
    check_bounds as check_bounds,
    load_config as load_config,
    load_parameters as load_parameters,
    Options as Options,
    RunConfig as RunConfig,
    SEEDS as SEEDS,
)
from ._errors import (
    as_usage_error as as_usage_error,
    UsageError as UsageError,
)
from ._report import (
    chart as chart,
    charts as charts,
    configuration as configuration,
    curve as curve,
    figures as figures,
    imitation as imitation,
    MAX_SERIES as MAX_SERIES,
    picture as picture,
    progress as progress,
    Series as Series,
    speed as speed,
    StoredRun as StoredRun,
    table as table,
    tables as tables,
    write_page as write_page,
)
from ._sinks import (
    TensorBoardSink as TensorBoardSink,
    WandbSink as WandbSink,
)
from ._train import (
    AbstractRun as AbstractRun,
    EvaluationResult as EvaluationResult,
    RunFiles as RunFiles,
    train as train,
)
from ._view import View as View
