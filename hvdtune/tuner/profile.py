"""profile.yaml: a chosen setting with the evidence for it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hvdtune.core.knobs import Knob, Value, validate
from hvdtune.errors import UsageError
from hvdtune.tuner.verdict import Verdict

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Evidence:
    """The verdict a profile rests on; percent, the interval at 95 %, None: nothing verified."""

    improved: bool
    gain_percent: float | None
    ci_percent: tuple[float, float] | None
    pairs: int
    launches: int
    noise_floor_percent: float
    text: str


@dataclass(frozen=True)
class Profile:
    """`fingerprint` says what it was measured on: world, hosts, versions."""

    version: int
    setting: dict[str, Value]
    default: dict[str, Value]
    verdict: Evidence
    fingerprint: dict[str, Any]
    created: str


def make_profile(
    verdict: Verdict, default: Mapping[str, Value], fingerprint: Mapping[str, Any], created: str
) -> Profile:
    """The profile of a verdict; `created` is a date and time in ISO 8601."""
    evidence = Evidence(
        improved=verdict.improved,
        gain_percent=verdict.gain_percent,
        ci_percent=verdict.ci_percent,
        pairs=verdict.pairs,
        launches=verdict.launches,
        noise_floor_percent=verdict.noise_floor_percent,
        text=verdict.text,
    )
    setting = dict(verdict.setting)
    return Profile(FORMAT_VERSION, setting, dict(default), evidence, dict(fingerprint), created)


def write_profile(profile: Profile, path: Path) -> None:
    """Write the file whole or not at all."""
    text = yaml.safe_dump(msgspec.to_builtins(profile), sort_keys=False, allow_unicode=True)
    replace_file(path, text)


def read_profile(path: Path, knobs: Sequence[Knob] | None = None) -> Profile:
    """Read and check a profile; raises UsageError in one line that names the file and the fault.

    Args:
        path: the file.
        knobs: the knob table, None for the core's own.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be a profile") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        raise UsageError(f"{path}{line}: {problem}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise UsageError(f"{path} is not a profile of version {FORMAT_VERSION}")
    try:
        for part in ("setting", "default"):
            if isinstance(document.get(part), dict):
                validate(document[part], knobs)
        profile = msgspec.convert(document, Profile)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error
    return profile


def replace_file(path: Path, text: str) -> None:
    """Write through a temporary file beside `path`, so that a reader never sees half of it."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        # A write, unlike an open, does not say which file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)
