"""The trials of a study as CSV, for readers of Horovod's autotune log.

The first seven columns are Horovod's, in its units. Its score is bytes per microsecond; here it is
the gain over the default in percent. Either way more is better.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from hvdtune.core.config.knobs import Value
from hvdtune.horovod.vocabulary import LOG_COLUMNS, Term
from hvdtune.tuner.files import replace_file
from hvdtune.tuner.storage.study_store import TrialView


def render_table(trials: Sequence[TrialView]) -> str:
    """One row per measured trial, in their order; score empty where nothing was measured."""
    further = sorted(
        {name for trial in trials for name in trial.setting}
        - {term.knob for term in LOG_COLUMNS.values()}
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*LOG_COLUMNS, "score", "plus_minus", "pairs", "state", *further])
    for trial in trials:
        if trial.state not in ("waiting", "running"):
            known = [_horovods(trial.setting, term) for term in LOG_COLUMNS.values()]
            measured = [_number(trial.gain_percent), _number(trial.stderr_percent)]
            rest = [_plain(trial.setting.get(name, "")) for name in further]
            table.writerow([*known, *measured, trial.pairs, trial.state, *rest])
    return text.getvalue()


def write_table(trials: Sequence[TrialView], path: Path) -> None:
    """Replaces the file. Raises OSError when it cannot be written."""
    replace_file(path, render_table(trials))


def _horovods(setting: Mapping[str, Value], term: Term) -> str:
    value = setting.get(term.knob, "")
    return f"{term.from_knob(value):g}" if term.mebibytes and value != "" else _plain(value)


def _plain(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
