"""The results of the workflows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from hvdtune.core.config.knobs import Value
    from hvdtune.tuner.results.profile import Profile
    from hvdtune.tuner.stats.noise_floor import NoiseFloor
    from hvdtune.tuner.stats.verdict import Verdict
    from hvdtune.tuner.storage.study_list import OpenStudy


@dataclass(frozen=True)
class LaunchResult:
    """The end of a job.

    Attributes:
        exit_code: that of the first rank to fail, 128 + N when signal N killed it, else 0.
        reason: the reason of the end, "" for a normal end.
        tail: the last lines of the rank that failed, else of rank 0.
        run_dir: the run folder, None without one.
        traces: the merged traces, one for each job that the ranks formed.
    """

    exit_code: int
    reason: str = ""
    tail: tuple[str, ...] = ()
    run_dir: Path | None = None
    traces: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """A run folder with measurements.

    Attributes:
        run_dir: the run folder.
        launch: number of the last launch.
        traces: the merged traces of the last launch.
        tail: the last lines of one rank in the last launch.
        tail_rank: that rank: the one that failed, else 0.
    """

    run_dir: Path
    launch: int = 0
    traces: tuple[Path, ...] = ()
    tail: tuple[str, ...] = ()
    tail_rank: int = 0

    @functools.cached_property
    def _stored(self) -> OpenStudy:
        from hvdtune.tuner.storage.study_list import StudyPlace, open_study

        return open_study(StudyPlace(str(self.run_dir), folder=self.run_dir))

    @property
    def pairs(self) -> pd.DataFrame:
        """Every measured pair; see `tuner.results.dataframes.pair_table` for the columns."""
        from hvdtune.tuner.results.dataframes import pair_table

        return pair_table(self._stored.view.pairs, self._stored.view.default)

    @property
    def report(self) -> str:
        """The report in Markdown."""
        return (self.run_dir / "report.md").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class StudyResult(MeasuredRun):
    """The result of a study.

    Attributes:
        verdict: kind, gain in percent, its interval at 95 %, pairs, launches, and a sentence.
        exit_code: the script's own after the verdict; 0 if it was ended.
        usage: the command that uses the setting, "" if the script continued with it.
    """

    verdict: Verdict
    exit_code: int = 0
    usage: str = ""

    @property
    def setting(self) -> dict[str, Value]:
        """The setting to use: proved or probably faster than the default, or the default."""
        return dict(self.verdict.setting)

    @property
    def profile_path(self) -> Path:
        """The file for `--profile` and `hvdtune.launch(profile=...)`."""
        return self.run_dir / "profile.yaml"

    @property
    def profile(self) -> Profile:
        """The setting, its evidence and the fingerprint of the job."""
        from hvdtune.tuner.results.profile import read_profile

        return read_profile(self.profile_path)

    @property
    def trials(self) -> pd.DataFrame:
        """Every trial; see `tuner.results.dataframes.trial_table` for the columns."""
        from hvdtune.tuner.results.dataframes import trial_table

        return trial_table(self._stored.view.trials, self._stored.view.default)

    def document(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        from hvdtune.tuner.stats.verdict import verdict_document

        return verdict_document(self.verdict)


@dataclass(frozen=True, kw_only=True)
class ComparisonResult(MeasuredRun):
    """The comparison of setting B with setting A, or of A with itself.

    Attributes:
        verdict: a Verdict on B, or the NoiseFloor of A: the difference between A and itself.
            Both contain gain and interval at 95 % in percent, pairs, launches and a sentence.
    """

    verdict: Verdict | NoiseFloor

    def document(self) -> dict[str, Any]:
        """The verdict or the floor as JSON values."""
        from hvdtune.tuner.stats.verdict import Verdict, verdict_document

        if isinstance(self.verdict, Verdict):
            return verdict_document(self.verdict)
        return self.verdict.document()
