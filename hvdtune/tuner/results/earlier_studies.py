"""What earlier launches of a job have shown, by the run folders or the database of its studies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.results.fingerprint import Fingerprint, differences, parse_fingerprint
from hvdtune.tuner.results.profile import Profile, ProfileVerdict, read_profile
from hvdtune.tuner.results.run_files import DRIFT_FILE, PROFILE_FILE
from hvdtune.tuner.search.known_setting import (
    LEAST_PAIRS,
    EarlierLaunch,
    EarlierProof,
    KnownSetting,
)
from hvdtune.tuner.stats.estimates import noise_of
from hvdtune.tuner.storage.pair_log import Pair, by_launch, pairs_of, read_pairs
from hvdtune.tuner.storage.study_list import read_run
from hvdtune.tuner.storage.study_reader import PAIRS_FILE
from hvdtune.tuner.storage.study_store import StudyStore

# What run.json says of a study by restarting, and of how it measures a launch.
_RESTART: Final = ("mode", "restart")
_MEASURED_BY: Final = ("metric", "launch_time", "vary")


@dataclass(frozen=True)
class EarlierStudy:
    """A study that has a verdict; `in_use` is the setting that its run ended with. With `restarts`
    each of its pairs was measured in launches of its own."""

    source: str
    default: Setting
    in_use: Setting
    verdict: ProfileVerdict
    pairs: Sequence[Pair]
    fingerprint: Mapping[str, Any]
    restarts: bool = False


@dataclass(frozen=True)
class Past:
    """`known` is the setting to begin with, None for none; `refused` says why what the same command
    has left is not that of the same job, "" where nothing is left out."""

    known: KnownSetting | None = None
    refused: str = ""


def past_of(
    run: Mapping[str, Any],
    here: Fingerprint,
    parents: Iterable[Path],
    own: Path,
    *,
    inside: Path | None = None,
) -> Past:
    """What the run folders below `parents`, but for `own`, hold of a job.

    The same job is the same command with the same variables and objectives, started with the same
    setting, whose fingerprint differs in nothing that is known of both.

    Args:
        run: what its own run.json has.
        here: its fingerprint.
        inside: where in a run folder the study is, None for the folder itself.
    """
    refused = ""
    studies: list[EarlierStudy] = []
    for path, there in _folders(parents, own, inside or Path()):
        if there.get("command") != run["command"] or "default" not in (there.get("study") or {}):
            continue  # a comparison of two settings has none
        with contextlib.suppress(UsageError, StudyError):  # damaged: `hvdtune study fsck` says how
            study = _read(path, run)
            if study is None:
                continue
            found = [*_run_differences(there, run)]
            found += differences(parse_fingerprint(study.fingerprint), here)
            if found:
                refused = f"{path} ran the same command, but not the same job: {'; '.join(found)}"
            else:
                studies.append(study)
    return Past(known_setting(studies), "" if studies else refused)


def shared_studies(store: StudyStore) -> list[EarlierStudy]:
    """Those of other tuners in the database of a shared study, the one that measured last at the
    end. Raises StudyError when it cannot be read."""
    return [
        EarlierStudy(
            ended.name,
            store.space.default,
            ended.verdict["setting"],
            msgspec.convert(ended.verdict, ProfileVerdict),
            ended.pairs,
            {},
        )
        for ended in store.ended_by_others()
    ]


def known_setting(studies: Sequence[EarlierStudy]) -> KnownSetting | None:
    """What studies of one job, oldest first, have ended with and know of that.

    None where there are none, the latest has ended with the default, or no launch has enough fresh
    pairs.
    """
    if not studies:
        return None
    latest = studies[-1]
    setting = dict(latest.in_use)
    launches = [launch for study in studies for launch in _launches(study, setting)]
    if setting == latest.default or not launches:
        return None
    return KnownSetting(setting, tuple(launches), _proof(latest), latest.source, latest.fingerprint)


def _proof(study: EarlierStudy) -> EarlierProof | None:
    verdict = study.verdict
    if not verdict.improved or verdict.gain_percent is None or verdict.ci_percent is None:
        return None
    return EarlierProof(
        verdict.gain_percent,
        verdict.ci_percent,
        verdict.pairs,
        verdict.launches,
        verdict.proved_by or study.source,
    )


def _launches(study: EarlierStudy, setting: Setting) -> Iterator[EarlierLaunch]:
    own = [pair for pair in study.pairs if pair.reference == study.default]
    calibration = [pair.log_ratio for pair in pairs_of(own, "calibrate")]
    trials = [pair for pair in study.pairs if pair.phase in ("search", "race")]
    searched = {pair.launch for pair in trials if pair.setting == setting}
    if not calibration:
        return
    for launch, values in by_launch(pairs_of(own, "verify", setting)).items():
        if study.restarts or len(values) >= LEAST_PAIRS:
            yield EarlierLaunch(tuple(values), noise_of(calibration), launch in searched)


def _folders(
    parents: Iterable[Path], own: Path, inside: Path
) -> list[tuple[Path, Mapping[str, Any]]]:
    """The folders with a profile and what the run.json of their runs has, the one finished last at
    the end."""
    profiles = {
        run.resolve(): run / inside / PROFILE_FILE
        for parent in parents
        for run in parent.glob("*")
        if run.resolve() != own.resolve() and (run / inside / PROFILE_FILE).exists()
    }
    ordered = sorted(profiles.items(), key=lambda each: each[1].stat().st_mtime_ns)
    return [(path.parent, read_run(run)) for run, path in ordered]


def _read(folder: Path, run: Mapping[str, Any]) -> EarlierStudy | None:
    """The study in a folder, None where it is one of another kind or runtime than the run's."""
    profile = read_profile(folder / PROFILE_FILE)
    own = run.get("study") or {}
    restarts = profile.fingerprint.get("mode") == "restart"
    if profile.adapter != own.get("adapter", "hvdtune") or restarts != (_RESTART in own.items()):
        return None
    return EarlierStudy(
        str(folder),
        profile.default,
        _in_use(folder, profile),
        profile.verdict,
        read_pairs(folder / PAIRS_FILE),
        profile.fingerprint,
        restarts,
    )


def _in_use(folder: Path, profile: Profile) -> Setting:
    """The setting of the verdict, or the one that took its place while the training went on."""
    try:
        lines = (folder / DRIFT_FILE).read_text(encoding="utf-8").splitlines()
        latest = json.loads(lines[-1])["setting"]
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return profile.setting
    return latest if isinstance(latest, dict) else profile.setting


def _run_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    one, other = there.get("study") or {}, here.get("study") or {}
    if one.get("default") != other.get("default"):
        yield "it started with a different setting"
    if one.get("objectives", ["step_time"]) != other.get("objectives", ["step_time"]):
        yield "it had different objectives"
    if any(one.get(name) != other.get(name) for name in _MEASURED_BY):
        yield "it measured its launches differently"
    known, own = there.get("variables") or {}, here.get("variables") or {}
    names = sorted(name for name in {*known, *own} if known.get(name) != own.get(name))
    if names:
        yield f"it had different values of the variables {', '.join(names)}"
