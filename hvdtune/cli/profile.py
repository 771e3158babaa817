"""`hvdtune profile`: export settings to other programs and import them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from hvdtune.cli.messages import info
from hvdtune.core.config.knobs import Setting, default_setting, load_knobs
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.tuner.results.exports import ExportTarget, export_profile
from hvdtune.tuner.results.horovod_autotune_log import Assessment, assess, fitted, read_autotune_log
from hvdtune.tuner.results.profile import (
    FORMAT_VERSION,
    Profile,
    ProfileVerdict,
    read_profile,
    write_profile,
)
from hvdtune.tuner.space.search_space import describe

_UNVERIFIED: Final = "not verified: imported from Horovod's autotune log"


def export(path: Path, target: ExportTarget) -> int:
    """Print the profile's setting for `target`."""
    print(export_profile(read_profile(path), target), end="")
    return 0


def import_autotune(path: Path, output: Path | None) -> int:
    """Print the evidence of the log and write its choice as a profile."""
    if output is None:
        output = Path(path.stem + ".yaml")
        if output.exists():
            raise UsageError(f"{output} already exists: choose another file with -o")
    _check_output(path, output)
    found = assess(read_autotune_log(path), default_setting())
    setting, changes = fitted(found.chosen, load_knobs())
    evidence = [*found.sentences(), *changes]
    profile = _imported(setting, found, f"{_UNVERIFIED} {path.name}: " + "; ".join(evidence))
    try:
        write_profile(profile, output)
    except OSError as error:
        raise HvdtuneError(f"cannot write {output}: {error.strerror}") from None
    print(f"{path}: {describe(profile.setting, profile.default)}")
    for sentence in evidence:
        print(f"    {sentence}")
    print(f"    {output}  the choice as a profile, not verified")
    if profile.is_unverified:
        info(f"to verify it: hvdtune verify --b {output} -np N train.py")
    return 0


def _check_output(path: Path, output: Path) -> None:
    """Raises UsageError if the output would overwrite a file other than a profile."""
    if not output.exists():
        return
    if path.exists() and output.samefile(path):
        raise UsageError(f"{output} is the log itself: choose another file with -o")
    if not _is_profile(output):
        raise UsageError(
            f"{output} already exists and is not a profile: choose another file with -o"
        )


def _is_profile(path: Path) -> bool:
    try:
        return path.is_file() and bool(read_profile(path))
    except UsageError:
        return False


def _imported(setting: Setting, found: Assessment, text: str) -> Profile:
    default = default_setting()
    evidence = ProfileVerdict(
        improved=False,
        gain_percent=None,
        ci_percent=None,
        pairs=0,
        launches=0,
        noise_floor_percent=found.noise_percent,
        text=text,
    )
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Profile(FORMAT_VERSION, default | dict(setting), default, evidence, {}, created)
