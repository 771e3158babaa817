"""A study's progress on the terminal: live lines there, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hvdtune.launcher.output import terminal_writer
from hvdtune.plural import counted
from hvdtune.tuner.measure.progress import NO_LIMIT_S
from hvdtune.tuner.space.search_space import describe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from hvdtune.core.config.knobs import Setting
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.workflows.requests import ProgressView


def format_duration(seconds: float) -> str:
    """Return a text such as `8m05s`, `1h02m` or `45s`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def headline(progress: StudyProgress) -> str:
    """Return phase, trial, launch and remaining time of a study."""
    parts: list[str] = [progress.phase]
    if progress.phase in ("search", "race", "verify") and progress.trials:
        parts.append(f"trial {progress.trial}/{progress.trials}")
    parts.append(f"launch {progress.launch}")
    if progress.seconds_left < NO_LIMIT_S:
        parts.append(f"{format_duration(progress.seconds_left)} left")
    return ", ".join(parts)


def measurement(progress: StudyProgress, default: Setting) -> list[str]:
    """Return two lines: the setting; its gain so far with error, pairs and steps/s."""
    if progress.setting is None:
        return []
    parts: list[str] = []
    if progress.gain_percent is not None:
        error = progress.plus_minus_percent
        spread = "" if error is None else f" +- {error:.1f}"
        pairs = counted(progress.pairs, "pair")
        parts.append(f"{progress.gain_percent:+.1f}{spread} % ({pairs})")
    if progress.steps_per_s is not None:
        parts.append(f"{progress.steps_per_s:.1f} steps/s")
    if progress.best_gain_percent is not None:
        parts.append(f"best so far {best_text(progress.best_gain_percent)}")
    return [line for line in (describe(progress.setting, default), "  ".join(parts)) if line]


def best_text(gain_percent: float) -> str:
    """Return the best reading of a search; the default counts as well, with a gain of 0."""
    return f"{gain_percent:+.1f} %" if gain_percent > 0 else "the default"


class PlainDisplay:
    """One line on stderr per message and per finished trial."""

    def __init__(self, default: Setting, *, json_only: bool = False) -> None:
        self._default = default
        self._trial = 0
        self._json_only = json_only
        self._write = terminal_writer()

    def write(self, stream: str, text: bytes) -> None:
        """Called from the thread that reads the ranks' output."""
        self._write("stderr" if self._json_only else stream, text)

    def show(self, progress: StudyProgress) -> None:
        """Called from the tuner's thread only."""
        if progress.trial != self._trial:
            self._trial = progress.trial
            # The default, which was measured before the search, has no line.
            if text := "  ".join(measurement(progress, self._default)):
                self._print(progress, text)
        if progress.message:
            self._print(progress, progress.message)
            for line in progress.lines[-5:]:
                print(f"    {line}", file=sys.stderr)

    def _print(self, progress: StudyProgress, text: str) -> None:
        print(f"hvdtune: {headline(progress)}: {text}", file=sys.stderr, flush=True)


class LiveDisplay:
    """Lines at the bottom of the terminal; messages and output scroll above them.

    Three lines describe the study, a fourth the setting in use if it is not the default. They are
    redrawn only for news: a clock would take time from the measured ranks.
    """

    def __init__(self, default: Setting, console: Console, live: Live) -> None:
        self._default, self._console, self._live = default, console, live

    def show(self, progress: StudyProgress) -> None:
        """May be called from any thread."""
        from rich.text import Text

        if progress.message:
            self._console.print(Text(progress.message))
            for line in progress.lines[-5:]:
                self._console.print(Text(f"    {line}", style="dim"))
        lines = Text(headline(progress), style="bold", no_wrap=True, overflow="ellipsis")
        for line in measurement(progress, self._default):
            lines.append("\n" + line, style="not bold")
        if progress.in_use is not None:
            lines.append(f"\nin use: {progress.in_use.text(self._default)}", style="not bold")
        self._live.update(lines, refresh=True)

    def write(self, _: str, text: bytes) -> None:
        """Called from the thread that reads the ranks' output."""
        from rich.text import Text

        shown = text.decode(errors="replace").replace("\r", "\n").rstrip("\n")
        self._console.print(Text(shown), soft_wrap=True)


@contextmanager
def open_display(default: Setting, *, json_only: bool = False) -> Iterator[ProgressView]:
    """Open the display that suits stderr; with `json_only`, stdout gets nothing."""
    if not sys.stderr.isatty():
        yield PlainDisplay(default, json_only=json_only)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live(
        console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield LiveDisplay(default, console, live)
