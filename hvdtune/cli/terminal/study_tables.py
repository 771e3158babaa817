"""Studies as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hvdtune.cli.terminal.display import best_text
from hvdtune.plural import counted
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.stats.verdict import scope_of
from hvdtune.tuner.storage.pair_log import by_launch, verified
from hvdtune.tuner.storage.study_list import OpenStudy, StudyPlace
from hvdtune.tuner.storage.trial import TrialView

# Width without a terminal.
_WIDTH = 160


def print_list(
    studies: Sequence[OpenStudy], damaged: Sequence[tuple[StudyPlace, str]] = ()
) -> None:
    """Print one row per study; the rows of unreadable ones contain the reason."""
    table = _table(
        "study", "state", "measured trials", "pairs", "best measured", "verdict", numbers=(2, 3, 4)
    )
    for study in studies:
        best = "" if study.best is None else best_text(study.best.gain_percent or 0.0)
        result = study.verdict or study.failure
        counts = str(study.measured), str(len(study.view.pairs))
        table.add_row(*_texts(study.place.name, study.state, *counts, best, result))
    for place, problem in damaged:
        table.add_row(*_texts(place.name, "damaged", "", "", "", problem))
    _console().print(table)


def print_study(study: OpenStudy) -> None:
    """Print the command, its trials, its verification by launches, and its verdict."""
    console = _console()
    console.print(Text(f"{study.place}: {study.state}", style="bold"))
    if study.run.get("command"):
        console.print(Text(f"command: {' '.join(study.run['command'])}"))
    if study.view.trials:
        console.print(_trials(study))
        console.print(Text(study.view.trials_text))
    if verified := _verification(study):
        console.print(verified)
        if together := _all_launches(study):
            console.print(Text(together))
    floor = study.view.noise_floor_percent
    if floor is not None:
        pairs = study.view.noise_floor_pairs
        over = "" if pairs is None else f", over {counted(pairs, 'pair')}"
        console.print(Text(f"A/A noise floor{over}: {floor:.2f} %"))
    console.print(Text(f"verdict: {study.verdict or 'none yet'}"))
    for sentence in filter(None, (study.in_use, study.advice)):
        console.print(Text(sentence))
    if study.failure:
        console.print(Text(f"ended before it was complete: {study.failure}"))
    folder = study.place.folder
    for trial in study.view.trials:
        if (
            folder is not None
            and trial.timeline
            and (folder / "artifacts" / trial.timeline).exists()
        ):
            path = folder / "artifacts" / trial.timeline
            console.print(Text(f"timeline of trial {trial.number}: {path}"), soft_wrap=True)


def _trials(study: OpenStudy) -> Table:
    shared = any(trial.by for trial in study.view.trials)
    further = list(dict.fromkeys(name for each in study.view.trials for name in each.further))
    beliefs = study.view.beliefs
    believed = ("estimate", "95 % over launches") if beliefs else ()
    columns = ("trial", "state", *believed, "measured", "+-", *further, "pairs", "setting", "why")
    numbers = (0, *range(2, 5 + len(believed) + len(further)))
    table = _table(*columns, *(["by"] if shared else []), numbers=numbers)
    for trial in study.view.trials:
        row = [str(trial.number), trial.state]
        if beliefs:
            row += _belief(trial, study)
        row += _gain(trial)
        row += [_further(trial, name) for name in further]
        row += [str(trial.pairs), describe(trial.setting, study.view.default or {}), trial.reason]
        table.add_row(*_texts(*row, *([trial.by] if shared else [])))
    return table


def _belief(trial: TrialView, study: OpenStudy) -> tuple[str, str]:
    if trial.setting == study.view.default:
        return "0 %", "by definition"
    belief = study.view.beliefs.get(trial.number)
    return ("", "") if belief is None else (f"{belief.gain_percent:+.1f} %", belief.interval_text)


def _gain(trial: TrialView) -> tuple[str, str]:
    if trial.gain_percent is None or trial.stderr_percent is None:
        return "", ""
    return f"{trial.gain_percent:+.1f} %", f"{2 * trial.stderr_percent:.1f}"


def _further(trial: TrialView, objective: str) -> str:
    found = trial.further.get(objective)
    return "" if found is None else f"{to_percent(found.log_ratio):+.1f} %"


def _verification(study: OpenStudy) -> Table | None:
    launches = by_launch(verified(study.view.pairs))
    if not launches:
        return None
    table = _table("verified in launch", "pairs", "mean gain", numbers=(0, 1, 2))
    for launch, values in launches.items():
        mean = to_percent(sum(values) / len(values))
        table.add_row(*_texts(str(launch), str(len(values)), f"{mean:+.1f} %"))
    return table


def _all_launches(study: OpenStudy) -> str:
    """Return the verification over its launches, "" if the verdict has none."""
    verdict = study.view.verdict or {}
    gain, interval, launches = (verdict.get(k) for k in ("gain_percent", "ci_percent", "launches"))
    if gain is None or interval is None or not launches:
        return ""
    low, high = interval
    scope = scope_of(launches, str(verdict.get("proved_by", "")))
    return f"verified: {gain:+.1f} % [{low:.1f}, {high:.1f}] 95 % CI {scope}"


def _table(*columns: str, numbers: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in numbers else "left", overflow="fold")
    return table


def _texts(*cells: str) -> list[Text]:
    return [Text(cell) for cell in cells]


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console
