"""The tuning study that lies beside a trace, as frames for the page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

from hvdtune.errors import StudyError
from hvdtune.plural import counted, sized

if TYPE_CHECKING:
    from hvdtune.tuner.storage.pair_log import Pair
    from hvdtune.tuner.storage.study_store import StudyView, TrialView

STANDARD_ERRORS = 2
_ABOVE_BY_CHANCE = 0.0228  # of readings of nothing, by more than two standard errors
FILES = ("study.db", "pairs.jsonl", "verdict.json")
_TRIAL_COLUMNS = [
    "trial", "state", "believed_percent", "believed_low_percent", "believed_high_percent",
    "gain_percent", "spread_percent", "pairs", "reason", "values", "steps",
]  # fmt: skip
_BELIEF_COLUMNS = ("believed_percent", "believed_low_percent", "believed_high_percent")
_PAIR_COLUMNS = [
    "pair", "launch", "trial", "gain_percent", "setting_step_ms", "reference_step_ms", "steps",
    "order",
]  # fmt: skip


@dataclass(frozen=True)
class VerdictSummary:
    """The study's one-line result; `interval_percent` is the 95 % interval of the gain, and `scope`
    says whether that is over launches.

    `in_use` says which setting is used; `is_unproved` that it is another than the default without
    being proved faster.

    `earlier_launches` is how many launches of earlier runs it rests on beside its own.

    `floor` is its noise floor, in percent, and over how many pairs; None: not recorded.
    """

    text: str
    improved: bool
    interval_percent: tuple[float, float] | None
    floor: tuple[float, int] | None = None
    in_use: str = ""
    is_unproved: bool = False
    advice: str = ""
    scope: str = ""
    earlier_launches: int = 0


@dataclass(frozen=True)
class StudyFrames:
    """One study.

    trials: trial, state (complete | pruned | failed | running | waiting), believed_percent with its
    range (believed_low_percent, believed_high_percent; over launches, nan before the search has
    ended and of hopeless settings), gain_percent (the reading), spread_percent (STANDARD_ERRORS
    standard errors), pairs, reason, values (knob -> value), steps (that were measured until it
    ended).
    verification: pair, launch, trial (-1: of none), gain_percent, setting_step_ms,
    reference_step_ms, steps, order.
    noise_floor_percent: of the default against itself, over noise_floor_pairs pairs.
    trials_text: how many trials there are, and of what kinds; "" where there are none.
    in_use: what trials are compared with in place of the default while the search goes on; "" where
    that is the default, and once there is a verdict, which says what is in use.
    profile: the file with the winner, None where there is none.
    """

    trials: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_TRIAL_COLUMNS))
    verification: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_PAIR_COLUMNS))
    noise_floor_percent: float | None = None
    noise_floor_pairs: int | None = None
    trials_text: str = ""
    verdict: VerdictSummary | None = None
    in_use: str = ""
    warnings: list[str] = field(default_factory=list)
    profile: Path | None = None

    @property
    def summary(self) -> str:
        """How much the study rests on, in one sentence."""
        launches = self.verification["launch"].nunique()
        floor = self.noise_floor_percent
        parts = [
            self.trials_text or counted(len(self.trials), "trial"),
            f"{counted(len(self.verification), 'verification pair')} over "
            f"{counted(launches, 'launch')}{self._earlier}"
            if launches
            else "no setting was verified",
            "A/A noise floor not recorded"
            if floor is None
            else f"A/A noise floor {floor:.2f} %{self.floor_basis}",
        ]
        of_verdict = None if self.verdict is None else self.verdict.floor
        if floor is not None and of_verdict and of_verdict[1] != self.noise_floor_pairs:
            percent, pairs = of_verdict
            parts[-1] += f" and {percent:.2f} % over {pairs} (it falls with the number of pairs)"
        return "; ".join(parts) + "."

    @property
    def _earlier(self) -> str:
        earlier = 0 if self.verdict is None else self.verdict.earlier_launches
        return f", and {counted(earlier, 'launch')} of earlier runs" if earlier else ""

    @property
    def has_beliefs(self) -> bool:
        """Whether the search has ended, so that its readings are put together."""
        return bool(self.trials["believed_percent"].notna().any())

    @property
    def unproved(self) -> str:
        """Says of trials that lie above zero, and were not verified, why they are no proof."""
        trials = self.trials
        above = trials[trials["gain_percent"] > trials["spread_percent"]]
        above = above[~above["trial"].isin(self.verification["trial"])]
        if above.empty:
            return ""
        measured = int(trials["spread_percent"].notna().sum())
        which = ", ".join(str(number) for number in above["trial"].head(8))
        by_chance = measured * _ABOVE_BY_CHANCE
        return (
            f"{_these(len(above), which)} above zero by more than two standard errors and "
            f"{'was' if len(above) == 1 else 'were'} not verified. This is not proof: by chance, "
            f"it happens in about {by_chance:.1f} of {counted(measured, 'trial')}. The tuner "
            "therefore combines each with the trials of similar settings before it verifies one."
        )

    @property
    def floor_basis(self) -> str:
        """Says over how many pairs the noise floor is, to stand after its number."""
        pairs = self.noise_floor_pairs
        return "" if pairs is None else f" over {counted(pairs, 'pair')}"


def _these(count: int, which: str) -> str:
    return f"Trial {which} lies" if count == 1 else f"Trials {which} lie"


def knob_text(knob: str, value: object) -> str:
    """Write a knob's value as people do: sizes, of knobs named `..._bytes`, with their units."""
    if isinstance(value, bool):
        return str(value).lower()
    if knob.endswith("_bytes") and isinstance(value, int) and value >= 2**10:
        return sized(value)
    return str(value)


def setting_text(knob: str, value: object) -> str:
    """Write a knob and its value as people do: "fusion threshold 128 MiB", "cycle time 1 ms"."""
    for ending, unit in (("_ms", " ms"), ("_us", " us"), ("_bytes", "")):
        if knob.endswith(ending):
            return f"{knob.removesuffix(ending).replace('_', ' ')} {knob_text(knob, value)}{unit}"
    return f"{knob.replace('_', ' ')} {knob_text(knob, value)}"


def knob_names(trials: pd.DataFrame) -> list[str]:
    """Every knob that some trial sets, in order of first appearance."""
    return list(dict.fromkeys(name for values in trials["values"] for name in values))


def open_study(folder: Path) -> StudyFrames | None:
    """The study in `folder`, None when there is none.

    A study that cannot be read becomes a warning: the trace beside it still opens.
    """
    if not any((folder / name).exists() for name in FILES):
        return None
    try:
        if not (folder / "study.db").exists():
            return _open_comparison(folder)
        # Optuna takes most of a second to import; a trace without a study does not need it.
        from hvdtune.tuner.storage.study_store import read_study

        study = describe_study(read_study(folder))
        profile = folder / "profile.yaml"
        return replace(study, profile=profile if profile.is_file() else None)
    except StudyError as error:
        return StudyFrames(verdict=_stored_verdict(folder / "verdict.json"), warnings=[str(error)])


def _open_comparison(folder: Path) -> StudyFrames:
    """Open the files of `hvdtune verify` and `hvdtune aa`: pairs and a verdict, no trials."""
    from hvdtune.tuner.storage.pair_log import read_pairs

    verdict = _stored(folder / "verdict.json")
    return StudyFrames(
        verification=_verification(read_pairs(folder / "pairs.jsonl")),
        noise_floor_percent=verdict.get("noise_floor_percent"),
        noise_floor_pairs=verdict.get("pairs"),
        verdict=_stored_verdict(folder / "verdict.json"),
    )


def describe_study(view: "StudyView") -> StudyFrames:
    """A study as the tuner stored it, as the page's frames."""
    until = _steps_until(view.pairs)
    rows = [
        {
            "trial": trial.number,
            "state": trial.state,
            **_believed(view, trial),
            "gain_percent": trial.gain_percent,
            "spread_percent": None
            if trial.stderr_percent is None
            else STANDARD_ERRORS * trial.stderr_percent,
            "pairs": trial.pairs,
            "reason": trial.reason,
            "values": dict(trial.setting),
            "steps": until.get(trial.number, 0),
        }
        for trial in view.trials
    ]
    trials = pd.DataFrame(rows, columns=_TRIAL_COLUMNS)
    measured = [name for name in _TRIAL_COLUMNS if name.endswith("_percent")]
    return StudyFrames(
        trials=trials.astype(dict.fromkeys(measured, float)),
        verification=_verification(view.pairs),
        noise_floor_percent=view.noise_floor_percent,
        noise_floor_pairs=view.noise_floor_pairs,
        trials_text=view.trials_text if view.trials else "",
        verdict=None if view.verdict is None else _verdict(view.verdict),
        in_use=_in_use(view),
    )


def _in_use(view: "StudyView") -> str:
    from hvdtune.tuner.storage.in_use import in_use_last

    last = in_use_last(view.pairs)
    if view.verdict is not None or view.default is None or last is None:
        return ""
    return last.text(view.default)


def _believed(view: "StudyView", trial: "TrialView") -> dict[str, float | None]:
    belief = view.beliefs.get(trial.number)
    if view.beliefs and trial.setting == view.default and not trial.is_duplicate:
        return dict.fromkeys(_BELIEF_COLUMNS, 0.0)
    if belief is None or trial.is_duplicate:
        return dict.fromkeys(_BELIEF_COLUMNS)
    values = (belief.gain_percent, belief.low_percent, belief.high_percent)
    return dict(zip(_BELIEF_COLUMNS, values, strict=True))


def _steps_until(pairs: "Sequence[Pair]") -> dict[int, int]:
    """Count, for each trial, the steps of all pairs up to its last."""
    until: dict[int, int] = {}
    steps = 0
    for pair in pairs:
        steps += pair.steps
        if pair.trial is not None:
            until[pair.trial] = steps
    return until


def _verification(pairs: "Sequence[Pair]") -> pd.DataFrame:
    from hvdtune.tuner.storage.pair_log import verified

    rows = [
        {
            "pair": number,
            "launch": pair.launch,
            "trial": -1 if pair.trial is None else pair.trial,
            "gain_percent": 100.0 * math.expm1(pair.log_ratio),
            "setting_step_ms": pair.setting_step_ms,
            "reference_step_ms": pair.reference_step_ms,
            "steps": pair.steps,
            "order": pair.order,
        }
        for number, pair in enumerate(verified(pairs), 1)
    ]
    return pd.DataFrame(rows, columns=_PAIR_COLUMNS)


def _verdict(stored: Mapping[str, Any]) -> VerdictSummary:
    interval = stored.get("ci_percent")
    return VerdictSummary(
        floor=_floor(stored),
        text=str(stored.get("text", "")),
        in_use=str(stored.get("in_use", "")),
        is_unproved=stored.get("expected") is not None,
        advice=str(stored.get("advice", "")),
        improved=bool(stored.get("improved", stored.get("kind") == "improved")),
        interval_percent=None if interval is None else (float(interval[0]), float(interval[1])),
        scope=_scope(stored.get("launches"), str(stored.get("proved_by", ""))),
        earlier_launches=int((stored.get("evidence") or {}).get("earlier", 0)),
    )


def _scope(launches: object, proved_by: str) -> str:
    from hvdtune.tuner.stats.verdict import scope_of

    return scope_of(launches, proved_by) if isinstance(launches, int) and launches else ""


def _floor(stored: Mapping[str, Any]) -> tuple[float, int] | None:
    floor, pairs = stored.get("noise_floor_percent"), stored.get("noise_floor_pairs")
    if isinstance(floor, int | float) and isinstance(pairs, int) and pairs > 0:
        return float(floor), pairs
    return None


def _stored_verdict(path: Path) -> VerdictSummary | None:
    stored = _stored(path)
    return _verdict(stored) if stored else None


def _stored(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
