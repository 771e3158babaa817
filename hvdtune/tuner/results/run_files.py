"""What a study, or a comparison, leaves in the run's folder beside its pairs."""

import contextlib
import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.files import replace_file
from hvdtune.tuner.measure.run import JobInfo
from hvdtune.tuner.results.fingerprint import complete_fingerprint
from hvdtune.tuner.results.profile import make_profile, write_profile
from hvdtune.tuner.results.study_report import write_document, write_verdict
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.verdict import Verdict

PROFILE_FILE: Final = "profile.yaml"
VERDICT_FILE: Final = "verdict.json"
REPORT_FILE: Final = "report.md"
DRIFT_FILE: Final = "drift.jsonl"


def write_results(
    run_dir: Path,
    verdict: Verdict,
    default: Setting,
    known: Mapping[str, Any] | None,
    job: JobInfo | None,
    report: str,
) -> None:
    """Write the profile, the verdict and the report. Raises StudyError.

    Args:
        known: the fingerprint as far as it was known before the launches.
        job: the ranks of the latest launch, None where nobody knows them.
    """
    fingerprint = complete_fingerprint(known, job, run_dir)
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    with writing():
        profile = make_profile(verdict, default, fingerprint, created)
        write_profile(profile, run_dir / PROFILE_FILE)
        write_verdict(verdict, run_dir / VERDICT_FILE)
        replace_file(run_dir / REPORT_FILE, report)


def write_floor(run_dir: Path, floor: NoiseFloor, report: str) -> None:
    """Write the verdict on a setting against itself, and the report. Raises StudyError."""
    with writing():
        write_document(floor.document(), run_dir / VERDICT_FILE)
        replace_file(run_dir / REPORT_FILE, report)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Raises a StudyError for a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise StudyError(f"cannot write {error.filename}: {error.strerror}") from error
