"""What the user is told while a study runs, and the clock a study runs by."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.stats.estimates import Estimate
from hvdtune.tuner.storage.in_use import InUse

# More than a month is no limit that anybody set.
NO_LIMIT_S: Final = 2.7e6

Phase = Literal["start", "calibrate", "search", "race", "verify", "done", "drift", "probe"]


@dataclass(frozen=True)
class StudyProgress:
    """One moment of a study.

    `trial` counts the trials measured so far, of `trials`; gain and plus_minus (two standard
    errors, None where nothing tells them) are those of `setting`, resting on `pairs`; `message` is
    a sentence for the user, "" for none; `lines` are the script's last lines when it crashed.
    `in_use` is what trials are compared with once that is not the default.
    """

    phase: Phase
    trial: int = 0
    trials: int = 0
    setting: Setting | None = None
    gain_percent: float | None = None
    plus_minus_percent: float | None = None
    pairs: int = 0
    steps_per_s: float | None = None
    seconds_left: float = 0.0
    best_gain_percent: float | None = None
    launch: int = 0
    message: str = ""
    lines: tuple[str, ...] = ()
    in_use: InUse | None = None


class Clock(Protocol):
    """Seconds from an arbitrary start, and waiting."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The launcher's monotonic clock."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class Reporter:
    """Keeps the latest Progress and hands each new one to the caller's function, if any."""

    def __init__(
        self,
        tell: Callable[[StudyProgress], None] | None,
        clock: Clock,
        trials: int,
        time_budget_s: float,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._end = clock.now() + time_budget_s
        self._latest = StudyProgress("start", trials=trials)
        self.has_limit = time_budget_s < NO_LIMIT_S

    @property
    def seconds_left(self) -> float:
        """Seconds left of the study's time budget; never negative."""
        return max(0.0, self._end - self._clock.now())

    def phase(self, phase: Phase, message: str) -> None:
        """A phase begins."""
        self._clear()
        self._send(dataclasses.replace(self._latest, phase=phase, message=message, lines=()))

    def notice(self, message: str, lines: tuple[str, ...] = ()) -> None:
        """Something the user should read."""
        self._send(dataclasses.replace(self._latest, message=message, lines=lines))

    def uses(self, in_use: InUse | None, message: str) -> None:
        """Trials are compared with this setting from here on, None: with the default."""
        self._latest = dataclasses.replace(self._latest, in_use=in_use)
        self.notice(message)

    def known(self, trial: int, best: Estimate | None) -> None:
        """Note how many trials have been measured before."""
        gain = None if best is None else best.gain_percent
        self._latest = dataclasses.replace(self._latest, trial=trial, best_gain_percent=gain)

    def trial_done(self, trial: int, setting: Setting, best: Estimate | None) -> None:
        """A trial of this setting has ended."""
        if setting != self._latest.setting:
            # No pair of it was measured now: what is shown is another one's.
            self._clear()
        self.known(trial, best)
        self.notice("")

    def launched(self, launch: int) -> None:
        """The script has been started."""
        self._latest = dataclasses.replace(self._latest, launch=launch)

    def measured(self, setting: Setting, so_far: Estimate, steps_per_s: float) -> None:
        """A pair is done; `so_far` is the estimate from the setting's pairs in this phase."""
        self._send(
            dataclasses.replace(
                self._latest,
                setting=setting,
                gain_percent=so_far.gain_percent,
                plus_minus_percent=so_far.plus_minus_percent if so_far.df else None,
                pairs=so_far.n,
                steps_per_s=steps_per_s,
                message="",
                lines=(),
            )
        )

    def _clear(self) -> None:
        self._latest = dataclasses.replace(
            self._latest, setting=None, gain_percent=None, plus_minus_percent=None, pairs=0
        )

    def _send(self, progress: StudyProgress) -> None:
        self._latest = dataclasses.replace(progress, seconds_left=self.seconds_left)
        if self._tell is not None:
            self._tell(self._latest)
