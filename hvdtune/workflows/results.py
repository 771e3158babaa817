"""What a workflow returns."""

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
    """How a job ended.

    Attributes:
        exit_code: that of the first rank to fail, 128 + N when signal N killed it, else 0.
        reason: why it ended like this, "" where there is nothing to say.
        tail: the last lines of the rank that failed, else of rank 0.
        run_dir: the run folder, None where none was asked for.
        traces: the merged traces, one for each job that the ranks formed.
    """

    exit_code: int
    reason: str = ""
    tail: tuple[str, ...] = ()
    run_dir: Path | None = None
    traces: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """A run folder in which something was measured.

    `launch` is the number of the last launch, whose traces are `traces`; `tail` are the last lines
    of `tail_rank`, the rank that failed in it, else rank 0.
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
    """What a study found.

    Attributes:
        verdict: kind, gain in percent, its interval at 95 %, pairs, launches, and a sentence.
        exit_code: the script's own after the verdict; 0 where it was not to go on.
        usage: how to use the setting, "" where the script went on with it.
    """

    verdict: Verdict
    exit_code: int = 0
    usage: str = ""

    @property
    def setting(self) -> dict[str, Value]:
        """The setting to use: proved faster than the default, most likely faster, or that."""
        return dict(self.verdict.setting)

    @property
    def profile_path(self) -> Path:
        """The file for `--profile` and `hvdtune.launch(profile=...)`."""
        return self.run_dir / "profile.yaml"

    @property
    def profile(self) -> Profile:
        """The setting with the evidence for it and what it was measured on."""
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
    """How setting B compares with setting A, or A with itself.

    Attributes:
        verdict: a Verdict on B, or the NoiseFloor of A, which is the difference that is measured
            where there is none. Both have gain and interval at 95 % in percent, pairs, launches
            and a sentence.
    """

    verdict: Verdict | NoiseFloor

    def document(self) -> dict[str, Any]:
        """The verdict or the floor as JSON values."""
        from hvdtune.tuner.stats.verdict import Verdict, verdict_document

        if isinstance(self.verdict, Verdict):
            return verdict_document(self.verdict)
        return self.verdict.document()
