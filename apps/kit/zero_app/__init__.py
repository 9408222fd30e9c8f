"""What an app is made of besides its loop: the command line, the run on disk, and games.

- An app is an `App`; `main` runs its commands (`COMMANDS` and its own).
- To derive from: a configuration (`AbstractConfig`, `AbstractTreeSearchConfig`), commands
  (`AbstractCommand`, `AbstractPlayerCommand`, `AbstractServe`) and how a game is
  shown (`AbstractBoard`, `Page`). One with a board has `GAME_COMMANDS`.
- On disk: `RunFolder`, `Checkpoints`, `read_lines`, `Results`.
- From Python: `train` runs the loop, `open` reads a run, `load` reads a `Trained` player, `measure`
  plays games.
- What was asked for and is not there, or cannot be, raises a `UsageError`: a line for the user that
  says what to give instead. Whatever the disk refuses, or holds and should not, raises a
  `RunError`, and in checkpoints a `CheckpointError`: a line for the user, which names the file.
"""

import importlib.metadata
import typing

from zero_envs import lazy_names


if typing.TYPE_CHECKING:
    from ._command._config import (
        AbstractAdamWConfig as AbstractAdamWConfig,
        AbstractConfig as AbstractConfig,
        AbstractTreeSearchConfig as AbstractTreeSearchConfig,
        Count as Count,
        Delay as Delay,
        Fraction as Fraction,
        NonNegative as NonNegative,
        Seed as Seed,
        UnusedWhere as UnusedWhere,
    )
    from ._command._errors import (
        as_usage_error as as_usage_error,
        environment as environment,
        NonFiniteError as NonFiniteError,
        UsageError as UsageError,
    )
    from ._command._parse import parse as parse, peek as peek
    from ._main import (
        COMMANDS as COMMANDS,
        errors_of as errors_of,
        expects_accelerator as expects_accelerator,
        GAME_COMMANDS as GAME_COMMANDS,
        main as main,
        run as run,
        start_jax as start_jax,
    )
    from ._play._commands import AbstractServe as AbstractServe
    from ._play._game import (
        AbstractBoard as AbstractBoard,
        AbstractRecord as AbstractRecord,
        Game as Game,
    )
    from ._play._gtp import serve_gtp as serve_gtp
    from ._play._play import Dialogue as Dialogue, Session as Session
    from ._play._service import Page as Page, Question as Question, Service as Service
    from ._play._sgf import Sgf as Sgf
    from ._play._watch import (
        Episode as Episode,
        is_plain as is_plain,
        Moment as Moment,
        moments as moments,
        screen as screen,
    )
    from ._play._watch_game import game_frames as game_frames
    from ._run._app import (
        AbstractCommand as AbstractCommand,
        App as App,
        by_name as by_name,
        CommandsByName as CommandsByName,
        loop_of as loop_of,
        Trained as Trained,
        write_report as write_report,
    )
    from ._run._checkpoint import Checkpoints as Checkpoints
    from ._run._compiled import compiled as compiled, count_bits as count_bits
    from ._run._disk import write_whole as write_whole
    from ._run._evaluation import (
        Evaluate as Evaluate,
        EvaluationResult as EvaluationResult,
        is_image as is_image,
        measure as measure,
        network_alone as network_alone,
        num_players as num_players,
        RunFiles as RunFiles,
        sentence as sentence,
        who as who,
        with_simulations as with_simulations,
    )
    from ._run._film import check_path as check_path, drawn as drawn, Frame as Frame
    from ._run._flags import check_flags as check_flags, read_config as read_config
    from ._run._folder import (
        check_finite as check_finite,
        RunFolder as RunFolder,
        Sink as Sink,
        StopSignal as StopSignal,
    )
    from ._run._ladder import (
        elo_ladder as elo_ladder,
        FixedLadder as FixedLadder,
        ladder_of as ladder_of,
    )
    from ._run._ladder_page import ladder_page as ladder_page
    from ._run._lines import (
        cut_lines as cut_lines,
        JsonLines as JsonLines,
        read_lines as read_lines,
        RunError as RunError,
    )
    from ._run._manifest import CheckpointError as CheckpointError
    from ._run._measures import (
        half_width as half_width,
        LOST as LOST,
        Measure as Measure,
        plus_minus as plus_minus,
        ratings as ratings,
        RETURN as RETURN,
        SCORE as SCORE,
        WON as WON,
    )
    from ._run._opponents import HostActor as HostActor, uct as uct
    from ._run._options import Launch as Launch, Options as Options
    from ._run._page import charts as charts, picture as picture, table as table, tables as tables
    from ._run._players import (
        AbstractPlayerCommand as AbstractPlayerCommand,
        app_of_player as app_of_player,
        load as load,
        player_file as player_file,
        player_names as player_names,
        PRETRAINED as PRETRAINED,
        save_player as save_player,
        which_player as which_player,
    )
    from ._run._provenance import read_of_run as read_of_run
    from ._run._report import (
        chart as chart,
        curve as curve,
        imitation as imitation,
        last_evaluation as last_evaluation,
        MAX_SERIES as MAX_SERIES,
        open as open,
        Series as Series,
        StoredRun as StoredRun,
    )
    from ._run._results import Result as Result, ResultKey as ResultKey, Results as Results
    from ._run._sinks import (
        BackgroundSink as BackgroundSink,
        MlflowSink as MlflowSink,
        TensorBoardSink as TensorBoardSink,
        WandbSink as WandbSink,
    )
    from ._run._stored import load_config as load_config
    from ._run._suite import Suite as Suite
    from ._run._train import train as train
    from ._run._uct import host_uct as host_uct
    from ._run._view import View as View
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)


__version__ = importlib.metadata.version("zero-app")
