"""What the demo shows while it runs, and the document that it leaves: figures, checks, seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

_NAME_WIDTH = 11


@dataclass(slots=True)
class Report:
    """Collects the outcome of every step and tells people about it.

    Attributes
    ----------
    console
        Where people read; a quiet one for ``--json``.
    started_at
        `time.perf_counter` when the demo began.
    steps
        A document for each finished step: its name, seconds and figures.
    checks
        Outcome of each comparison, by name.
    """

    console: Console
    started_at: float = field(default_factory=time.perf_counter)
    steps: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)
    _now: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.perf_counter() - self.started_at

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        """Time a step, and attribute the figures inside to it."""
        number = len(self.steps) + 1
        self.console.print()
        self.console.print(Text.assemble((f"{number}  {title}", "bold")))
        self._now = {"name": name}
        started = time.perf_counter()
        yield
        seconds = round(time.perf_counter() - started, 3)
        self.steps.append({"name": name, "seconds": seconds, **self._now})
        self.console.print(Text(f"   {seconds:.2f} s", style="dim"))

    def figure(self, **figures: Any) -> None:
        """Add figures to the running step."""
        self._now.update(figures)

    def say(self, name: str, text: str, check: str | None = None, holds: bool = True) -> None:
        """Print a line for people, with the outcome of a check if there is one."""
        if check is not None:
            self.checks[check] = bool(holds)
        mark = ("✔", "green") if holds else ("✘", "bold red")
        line = Text.assemble("  ", mark if check else " ", f" {name:<{_NAME_WIDTH}} ", text)
        if check and not holds:
            line.append(f"  WRONG: {check.replace('_', ' ')}", "bold red")
        self.console.print(line, soft_wrap=True)

    def track(self, items: Iterable[int], total: int, what: str) -> Iterator[int]:
        """Iterate over items, with a bar on a terminal."""
        columns = (
            TextColumn("    {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        ) as progress:
            yield from progress.track(items, total=total, description=what)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner on a terminal during long work, or print a line elsewhere."""
        if not self.console.is_terminal:
            self.say("…", what)
        with self.console.status(what):
            yield

    def document(self) -> dict[str, Any]:
        """Everything that the demo found; ``ok`` where every check holds."""
        return {
            "ok": bool(self.checks) and all(self.checks.values()),
            "steps": self.steps,
            "checks": self.checks,
        }
