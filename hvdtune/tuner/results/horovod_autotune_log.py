"""Horovod's autotune log: what was measured, and what that supports. Pure but for the reading.

A row is a setting and one score, bytes reduced per microsecond (more is better), the median of five
windows. The last row of a finished log is Horovod's choice with the score of an earlier row: no
measurement. Scores are compared by their logarithms, as step times are elsewhere.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.core.config.knobs import Knob, Setting, Value, validate
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import LOG_COLUMNS
from hvdtune.plural import counted
from hvdtune.tuner.files import read_text
from hvdtune.tuner.stats.estimates import Noise, t_reach, to_percent

# Versions before 0.28 lack some flags.
_NEEDED: Final = ("cycle_time_ms", "tensor_fusion_threshold", "score")


@dataclass(frozen=True)
class AutotuneRow:
    """One line of the log; the setting names only the knobs that the log has."""

    setting: Mapping[str, Value]
    score: float


@dataclass(frozen=True)
class AutotuneLog:
    """The measured rows in their order, and Horovod's choice (None: it was not finished)."""

    rows: tuple[AutotuneRow, ...]
    choice: AutotuneRow | None


@dataclass(frozen=True)
class Assessment:
    """Conclusions that a log supports.

    `chosen` is Horovod's choice, the best score where the log is not `finished`; `was_measured`
    says whether any row has it. `repeats` counts the measurements that repeat another; without
    them `noise_percent` (standard deviation of one score) is None, and so is `ci_percent`, the 95 %
    interval of `gain_percent`: the choice over the default, or over the first row where the
    default is not in the log. `alike` counts the other settings that noise does not set apart.
    """

    chosen: Mapping[str, Value]
    finished: bool
    was_measured: bool
    settings: int
    measurements: int
    repeats: int
    noise_percent: float | None
    gain_percent: float | None
    ci_percent: tuple[float, float] | None
    over_default: bool
    alike: int

    def sentences(self) -> Iterator[str]:
        """The same for people."""
        yield (
            f"{counted(self.measurements, 'measurement')} of {counted(self.settings, 'setting')}; "
            + (
                "Horovod chose one"
                if self.finished
                else "the log is not finished, so the setting with the best score is the choice"
            )
        )
        if not self.was_measured:
            yield "the choice was never measured: it combines values of different rows"
        if self.noise_percent is None:
            yield (
                "no setting was measured twice, so noise is unknown: the maximum of "
                f"{self.measurements} scores is biased upward; verify the choice"
            )
        else:
            yield (
                f"{self.repeats} repetitions: one score has a standard deviation of "
                f"{self.noise_percent:.1f} %"
            )
        if self.gain_percent is not None:
            over = "the default" if self.over_default else "the first row (no row is the default)"
            yield f"the choice scored {self.gain_percent:+.1f} % over {over}{self._interval()}"
        if self.noise_percent is not None and self.was_measured:
            yield (
                f"{self.alike} of the other {self.settings - 1} settings are not significantly "
                "different from the choice"
            )

    def _interval(self) -> str:
        if self.ci_percent is None:
            return ""
        low, high = self.ci_percent
        return f" [{low:.1f}, {high:.1f}] (95 % CI for the best of {self.settings})"


def read_autotune_log(path: Path) -> AutotuneLog:
    """Read a log of Horovod's; raises UsageError naming file, line and fault."""
    try:
        return _read_rows(path, csv.reader(io.StringIO(read_text(path))))
    except csv.Error as error:
        raise UsageError(f"{path} is not a log of Horovod's autotune: {error}") from error


def _read_rows(path: Path, table: Iterator[list[str]]) -> AutotuneLog:
    names = [name.strip() for name in next(table, [])]
    if "plus_minus" in names:
        raise UsageError(
            f"{path} is hvdtune's own table of trials: use profile.yaml in the study's run folder"
        )
    missing = [name for name in _NEEDED if name not in names]
    unknown = [name for name in names if name not in LOG_COLUMNS and name != "score"]
    if missing or unknown:
        fault = f"no column {missing[0]}" if missing else f"an unknown column {unknown[0][:40]!r}"
        raise UsageError(f"{path} is not a log of Horovod's autotune: it has {fault}")
    rows = [
        _row(f"{path}:{number}", names, cells) for number, cells in enumerate(table, 2) if cells
    ]
    choice = None
    if rows and any(row.score == rows[-1].score for row in rows[:-1]):
        choice = rows.pop()
    if not rows:
        raise UsageError(f"{path} has no measurement")
    return AutotuneLog(tuple(rows), choice)


def _row(where: str, names: list[str], cells: list[str]) -> AutotuneRow:
    if len(cells) != len(names):
        raise UsageError(f"{where}: {len(cells)} values for {len(names)} columns")
    try:
        values = {name: float(cell) for name, cell in zip(names, cells, strict=True)}
    except ValueError:
        raise UsageError(f"{where}: a value is not a number") from None
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{where}: {name} cannot be {value:g}")
    score = values.pop("score")
    if score == 0:
        raise UsageError(f"{where}: score cannot be 0")
    terms = ((LOG_COLUMNS[name], value) for name, value in values.items())
    return AutotuneRow({term.knob: term.to_knob(value) for term, value in terms}, score)


def fitted(setting: Setting, knobs: Sequence[Knob]) -> tuple[dict[str, Value], list[str]]:
    """Return the setting within the knobs' ranges, and a sentence per value that was outside.

    Horovod's cycle times go to 100 ms.
    """
    table = {knob.name: knob for knob in knobs}
    inside: dict[str, Value] = {}
    outside = []
    for name, value in setting.items():
        knob = table[name]
        inside[name] = value
        if knob.kind in ("int", "float") and not knob.low <= float(value) <= knob.high:
            inside[name] = type(value)(min(max(float(value), knob.low), knob.high))
            outside.append(f"{name} = {value} is outside hvdtune's range: using {inside[name]}")
    return validate(inside, knobs), outside


def assess(log: AutotuneLog, default: Setting) -> Assessment:
    """Says what the log supports; `default` is a complete setting."""
    scores: defaultdict[tuple[Value, ...], list[float]] = defaultdict(list)
    for row in log.rows:
        scores[_key(row)].append(math.log(row.score))
    choice = log.choice or max(log.rows, key=lambda row: row.score)
    chosen, first = _key(choice), _key(log.rows[0])
    usual = tuple(default[name] for name in log.rows[0].setting)
    reference = usual if usual in scores else first
    repeats = len(log.rows) - len(scores)
    sd = _pooled_sd(list(scores.values())) if repeats else None
    gain: float | None = None
    interval: tuple[float, float] | None = None
    alike = 0
    if chosen in scores:
        # The choice is the best of many, so each difference is held to a stricter standard.
        confidence = 1 - 0.05 / max(len(scores) - 1, 1)
        others = [key for key in scores if key != chosen]
        if sd is not None:
            noise = Noise(sd, repeats)
            reach = t_reach(noise.df, confidence) * noise.sd
            means = {key: _mean(values) for key, values in scores.items()}
            found = {}
            for key in others:
                width = reach * math.sqrt(1 / len(scores[chosen]) + 1 / len(scores[key]))
                difference = means[chosen] - means[key]
                found[key] = difference - width, difference + width
            alike = sum(low <= 0 <= high for low, high in found.values())
            interval = found.get(reference)
        if chosen != reference:
            gain = _mean(scores[chosen]) - _mean(scores[reference])
    return Assessment(
        chosen=choice.setting,
        finished=log.choice is not None,
        was_measured=chosen in scores,
        settings=len(scores),
        measurements=len(log.rows),
        repeats=repeats,
        noise_percent=None if sd is None else to_percent(sd),
        gain_percent=None if gain is None else to_percent(gain),
        ci_percent=None if interval is None else (to_percent(interval[0]), to_percent(interval[1])),
        over_default=reference == usual,
        alike=alike,
    )


def _key(row: AutotuneRow) -> tuple[Value, ...]:
    return tuple(row.setting.values())


def _pooled_sd(groups: Sequence[Sequence[float]]) -> float:
    means = [_mean(group) for group in groups]
    squares = sum(
        (value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group
    )
    return math.sqrt(squares / sum(len(group) - 1 for group in groups))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
