"""Where metrics go besides the run folder's own files: TensorBoard, and Weights & Biases."""

import os
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any


class TensorBoardSink:
    """Writes scalars as TensorBoard events: a [`zero_train.Sink`][]."""

    def __init__(self, folder: str | os.PathLike[str], *, resumed_at: int | None = None):
        """**Arguments:**

        - `folder`: for the event files; made if missing.
        - `resumed_at`: the last step done; TensorBoard then hides what an earlier, interrupted
            run wrote for later ones.
        """
        from tensorboardX import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(pathlib.Path(folder)), purge_step=purge, flush_secs=5)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one step; it reaches the disk within seconds."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, float(value), step)

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


class WandbSink:
    """Sends scalars to Weights & Biases: a [`zero_train.Sink`][]. Needs the extra `wandb`."""

    def __init__(self, project: str, folder: pathlib.Path, config: Mapping[str, Any]):
        """**Arguments:**

        - `project`: the project's name there.
        - `folder`: the run folder. Its name is the run's name; its file wandb.id is the run's
            identity, so that only this folder's own run is ever resumed.
        - `config`: shown there.

        **Raises:** `ValueError` where wandb is not installed.
        """
        try:
            import wandb  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as e:
            raise ValueError(
                "--wandb needs the extra wandb; install zero-train[wandb], or leave the flag out."
            ) from e
        self._run = wandb.init(
            project=project,
            name=folder.name,
            id=_identity(folder / "wandb.id"),
            resume="allow",
            dir=str(folder),
            config=dict(config),
        )

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Sends one step."""
        self._run.log({name: float(value) for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()


def _identity(path: pathlib.Path) -> str:
    """A random name, the same whenever this file is asked again."""
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return path.read_text()
