"""From the ranks' raw files to one trace for each job that they formed."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvdtune.cli.messages import warn
from hvdtune.errors import HvdtuneError

if TYPE_CHECKING:
    from hvdtune.cli.options import RunOptions
    from hvdtune.timeline.model.schema import Trace

_RAW: Final = re.compile(r"rank-\d+(-job(?P<job>\d+))?\.hvt")


@dataclass(frozen=True)
class Form:
    """How a trace is written: all ranks for viewers, or as Horovod does, with cycles or without."""

    horovod: bool = False
    mark_cycles: bool = False

    @classmethod
    def of(cls, options: RunOptions) -> Form:
        """What the options of a run ask for."""
        return cls(options.timeline_format == "horovod", bool(options.timeline_mark_cycles))

    def write(self, trace: Trace, target: Path) -> None:
        """Writes `target`. Raises HvdtuneError when it cannot be."""
        from hvdtune.timeline.writing.export import write_chrome
        from hvdtune.timeline.writing.export_horovod import write_horovod

        try:
            if self.horovod:
                write_horovod(trace, target, mark_cycles=self.mark_cycles)
            else:
                write_chrome(trace, target)
        except OSError as error:
            raise HvdtuneError(f"cannot write the trace {target}: {error.strerror}") from None


_PLAIN: Final = Form()


def write_traces(
    raw: Path, target: Path, form: Form = _PLAIN, *, ended: bool = False
) -> list[Path]:
    """Merges the rank files in the folder `raw` into `target`; says on stderr what is missing.

    Where the ranks called init() again after shutdown(), each later job has a trace of its own
    beside the first, with `-job1`, `-job2` ... in its name. `ended`: the ranks were ended, so that
    their files need not be closed.

    Returns the traces written. Raises HvdtuneError when one cannot be.
    """
    written = []
    for job, ranks in sorted(_by_job(raw).items()):
        written.append(target.with_stem(f"{target.stem}-job{job}") if job else target)
        _write_trace(ranks, written[-1], form, ended=ended)
    return written


def newest_job(raw: Path) -> list[Path]:
    """The rank files in `raw` of the last job that the ranks formed; none before the first."""
    files = _by_job(raw)
    return files[max(files)] if files else []


def _by_job(raw: Path) -> dict[int, list[Path]]:
    files: defaultdict[int, list[Path]] = defaultdict(list)
    for path in sorted(raw.iterdir()):
        if match := _RAW.fullmatch(path.name):
            files[int(match["job"] or 0)].append(path)
    return files


def _write_trace(files: list[Path], target: Path, form: Form, *, ended: bool) -> None:
    from hvdtune.timeline.reading.merge import merge

    trace = merge(files)
    for text in trace.warnings:
        if not (ended and "did not close it" in text):
            warn(text)
    form.write(trace, target)
