"""Bars of `spark_pages.progress` on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text


class _Bar(ProgressColumn):
    def render(self, task: Task) -> ProgressBar:
        fraction = task.fields["phase"].fraction
        return ProgressBar(1.0, fraction or 0.0, width=20, pulse=fraction is None and task.stop_time is None)


class _Figures(ProgressColumn):
    def __init__(self, text: Callable[[Any], str]) -> None:
        super().__init__(Column(ratio=1, no_wrap=True, overflow="ellipsis"))  # the first to lose in width
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text(task.fields["phase"]))


def drawing(text: Callable[[Any], str]) -> Progress:
    """Return the bars of phases on stderr, each a task with the field ``phase``.

    Parameters
    ----------
    text
        Gives the figures of a phase.
    """
    # What is printed meanwhile must go where it was meant to: the result to stdout.
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        _Bar(),
        _Figures(text),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
