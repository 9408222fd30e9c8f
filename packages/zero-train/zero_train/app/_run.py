"""What is an app's own in a run."""

import abc
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Array, PyTree

from .. import Checkpoints, RunFolder


@dataclasses.dataclass(frozen=True)
class Records:
    """What a run has on disk, when it begins or goes on.

    **Attributes:**

    - `folder`: for files of the app's own.
    - `players`: what [`zero_train.app.AbstractRun`][]`.player` gave, by step.
    - `evaluations`: the lines of evaluations.jsonl so far.
    """

    folder: RunFolder
    players: Checkpoints
    evaluations: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Standing:
    """What an evaluation found.

    **Attributes:**

    - `rows`: new lines of evaluations.jsonl.
    - `metrics`: logged with the step.
    - `figures`: labelled figures for the live view.
    - `verdict`: a line for the live view.
    """

    rows: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Any]
    figures: Mapping[str, str]
    verdict: str = ""


class AbstractRun(abc.ABC):
    """What an app adds to the loop around the loop, [`zero_train.app.train`][].

    Whatever it keeps must follow from its configuration and its
    [`zero_train.app.Records`][]: a run that was resumed writes what one that was not would.

    **Attributes:**

    - `project`: what Weights & Biases files the app's runs under.
    - `shown`: what the live view calls each metric that it shows, by its name.
    """

    project: str
    shown: Mapping[str, str]

    @abc.abstractmethod
    def player(self, agent: PyTree[Array]) -> PyTree[Array]:
        """What of an agent's state plays: it is evaluated, and saved with every checkpoint and
        every evaluation."""

    @abc.abstractmethod
    def measure(self, step: int) -> Mapping[str, Any]:
        """What is logged of a step besides what [`zero_train.step`][] gives, such as the learning
        rate."""

    @abc.abstractmethod
    def evaluate(self, step: int, player: PyTree[Array]) -> Standing | None:
        """Evaluates the player of a step that is done; `None` where its turn is not yet."""

    @abc.abstractmethod
    def report(self, folder: pathlib.Path) -> None:
        """Writes the report of the run in `folder`; called when it ends, however it ends."""
