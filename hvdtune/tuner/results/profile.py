"""profile.yaml: a chosen setting with the evidence for it."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from hvdtune import yaml_text
from hvdtune.core.config.knobs import Knob, Value, load_knobs, validate
from hvdtune.errors import UsageError
from hvdtune.tuner.files import field_fault, read_text, replace_file
from hvdtune.tuner.results.fingerprint import Fingerprint, distance, parse_fingerprint
from hvdtune.tuner.space.targets import knobs_of_profile
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.stats.verdict import LaunchEvidence, Verdict, verdict_document

FORMAT_VERSION = 1
_NO_PROFILE: Final = "is not a profile, such as profile.yaml in the run folder of a study"
_NO_SETTING: Final = "is neither a profile nor lines of 'knob: value'"


@dataclass(frozen=True)
class ProfileVerdict:
    """The verdict a profile rests on; percent, the interval at 95 %, None: nothing measured.

    `expected` is what is believed of a setting that was chosen without proof, else None;
    `evidence` that of launches of earlier runs and of the study together; `proved_by` is the
    earlier study of whose launches gain and interval are, "" where they are of its own.
    """

    improved: bool
    gain_percent: float | None
    ci_percent: tuple[float, float] | None
    pairs: int
    launches: int
    noise_floor_percent: float | None
    text: str
    expected: Belief | None = None
    evidence: LaunchEvidence | None = None
    proved_by: str = ""


@dataclass(frozen=True)
class Profile:
    """`fingerprint` says what it was measured on; `parse_fingerprint` reads it."""

    version: int
    setting: dict[str, Value]
    default: dict[str, Value]
    verdict: ProfileVerdict
    fingerprint: dict[str, Any]
    created: str

    @property
    def is_unverified(self) -> bool:
        """Return whether the setting differs from the default and is not proved better."""
        return self.setting != self.default and not self.verdict.improved

    @property
    def unverified_text(self) -> str:
        """Says what is known of an unverified setting, without a full stop."""
        expected = self.verdict.expected
        if expected is None:
            return self.verdict.text
        return f"{expected.unproved_elsewhere_text}; {self.verdict.text}"

    @property
    def adapter(self) -> str:
        """The runtime whose setting it is: hvdtune's own unless another was tuned."""
        return str(self.fingerprint.get("adapter", "hvdtune"))


@dataclass(frozen=True)
class NearProfile:
    """A profile on disk and how far it was measured from here, as `fingerprint.distance` has it."""

    path: Path
    profile: Profile
    distance: float


def make_profile(
    verdict: Verdict, default: Mapping[str, Value], fingerprint: Mapping[str, Any], created: str
) -> Profile:
    """The profile of a verdict; `created` is a date and time in ISO 8601."""
    evidence = msgspec.convert(verdict_document(verdict), ProfileVerdict)
    setting = dict(verdict.setting)
    return Profile(FORMAT_VERSION, setting, dict(default), evidence, dict(fingerprint), created)


def write_profile(profile: Profile, path: Path) -> None:
    """Write the file whole or not at all."""
    text = yaml_text.dump(msgspec.to_builtins(profile))
    replace_file(path, text)


def read_profile(path: Path, knobs: Sequence[Knob] | None = None) -> Profile:
    """Read and check a profile; raises UsageError in one line that names the file and the fault.

    Args:
        path: the file.
        knobs: the knob table, None for the core's own, or those of the runtime that the profile
            says it is for.
    """
    return _profile(path, _read_yaml(path, _NO_PROFILE), knobs)


def read_setting_file(path: Path, knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    """The knobs that a file names: a profile, a verdict.json (its candidate), or `knob: value`.

    Raises UsageError as `read_profile` does.
    """
    document = _read_yaml(path, _NO_SETTING)
    if not isinstance(document, dict):
        raise UsageError(f"{path} {_NO_SETTING}")
    if "default" in document and "setting" in document:
        return _profile(path, document, knobs).setting
    named = document.get("candidate", document)
    if named is None:
        raise UsageError(
            f"{path}: has no candidate, because its study verified no setting; write one of the "
            "trials in report.md as lines of 'knob: value' into a file and specify that file, "
            "or run a longer study"
        )
    if not isinstance(named, dict) or not named or not all(isinstance(n, str) for n in named):
        raise UsageError(f"{path}: contains no setting")
    try:
        return validate(named, knobs)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def nearest_profile(
    here: Fingerprint, folder: Path, knobs: Sequence[Knob] | None = None
) -> NearProfile | None:
    """The winner of the past study in `folder` (of run folders) that was measured nearest to here.

    What a new study tries early it still has to prove: a setting that was chosen without proof
    counts, too, behind one that was proved equally near. Files that cannot be read do not count.
    None when there is none.
    """
    near: list[NearProfile] = []
    for path in sorted(folder.glob("*/profile.yaml")):
        with contextlib.suppress(UsageError):
            profile = read_profile(path, knobs)
            is_chosen = profile.verdict.improved or profile.verdict.expected is not None
            if is_chosen and profile.adapter == "hvdtune":
                away = distance(parse_fingerprint(profile.fingerprint), here)
                near.append(NearProfile(path, profile, away))
    return min(
        near, key=lambda each: (each.distance, not each.profile.verdict.improved), default=None
    )


def _profile(path: Path, document: Any, knobs: Sequence[Knob] | None) -> Profile:
    if not isinstance(document, dict) or "version" not in document:
        raise UsageError(f"{path} {_NO_PROFILE}")
    if document["version"] != FORMAT_VERSION:
        raise UsageError(f"{path} is not a profile of version {FORMAT_VERSION}")
    try:
        parts = [document[key] for key in ("setting", "default") if _is_setting(document.get(key))]
        measured = document.get("fingerprint")
        if knobs is None and isinstance(measured, dict) and measured.get("mode") == "restart":
            knobs = knobs_of_profile(str(measured.get("adapter")), parts, load_knobs())
        for part in parts:
            validate(part, knobs)
        profile = msgspec.convert(document, Profile)
        parse_fingerprint(profile.fingerprint)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {field_fault(error)}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return profile


def _is_setting(part: object) -> bool:
    return isinstance(part, dict) and all(isinstance(v, int | float | str) for v in part.values())


def _read_yaml(path: Path, otherwise: str) -> Any:
    """The file's content. Where it is not YAML, the error says `otherwise`."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it, such as profile.yaml")
    try:
        return yaml_text.load(read_text(path))
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be a profile") from error
    except yaml_text.YAMLError as error:
        # Without a mark the text as a whole cannot be YAML: it is of another kind.
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        detail = f"; line {mark.line + 1} is not YAML: {problem}" if mark is not None else ""
        raise UsageError(f"{path} {otherwise}{detail}") from error
