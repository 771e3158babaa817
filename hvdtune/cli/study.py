"""`hvdtune study ...`: lists, shows, exports, deletes and repairs studies."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from hvdtune.cli.handover import WorkbenchGroup
from hvdtune.cli.messages import info
from hvdtune.cli.parameters import explained, group, json_option
from hvdtune.errors import StudyError, UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    import sqlalchemy

    from hvdtune.tuner.storage.study_list import OpenStudy, StudyPlace

_RUNS: Final = Path("runs")

_one = explained(
    "study",
    required=False,
    metavar="[STUDY]",
    help="Run folder or, with --storage, name of a study. [default: the latest]",
)
_runs = click.option("--runs", type=Path, default=_RUNS, help="Folder that holds the run folders.")
_storage = click.option(
    "--storage", metavar="URL", help="Use this database instead of run folders."
)


@group(cls=WorkbenchGroup)
def study() -> None:
    """List, show, export, delete and repair studies."""


@study.command("list")
@_runs
@_storage
@json_option
def list_studies(*, runs: Path, storage: str | None, as_json: bool) -> int:
    """List the studies in run folders or in a database."""
    from hvdtune.cli.terminal.study_tables import print_list
    from hvdtune.tuner.storage.study_list import open_study

    url = _url(storage)
    places = _places(runs, url)
    found: list[OpenStudy] = []
    damaged: list[tuple[StudyPlace, str]] = []
    for place in places:
        try:
            found.append(open_study(place))
        except StudyError as error:
            damaged.append((place, str(error)))
    if as_json:
        broken = [
            {"study": place.name, "state": "damaged", "problem": text} for place, text in damaged
        ]
        _print_json([*(study.summary() for study in found), *broken])
    elif places:
        print_list(found, damaged)
    else:
        info(f"no studies in {runs if url is None else storage}")
    return 0


@study.command()
@_one
@_runs
@_storage
@json_option
def show(study: str | None, *, runs: Path, storage: str | None, as_json: bool) -> int:
    """Show a study's trials, its verification and its verdict."""
    from hvdtune.cli.terminal.study_tables import print_study
    from hvdtune.tuner.storage.study_list import find_place, open_study

    opened = open_study(find_place(study, runs, _url(storage)))
    if as_json:
        _print_json(opened.document())
    else:
        print_study(opened)
    return 0


@study.command()
@_one
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "json", "parquet"]),
    default="csv",
    help="Format to write.",
)
@click.option(
    "--output",
    "-o",
    type=Path,
    metavar="PREFIX",
    help="Prefix of the file names. [default: the study's name]",
)
@_runs
@_storage
def export(
    study: str | None,
    *,
    kind: Literal["csv", "json", "parquet"],
    output: Path | None,
    runs: Path,
    storage: str | None,
) -> int:
    """Write trials and pairs to PREFIX-trials and PREFIX-pairs, or both to one JSON file."""
    from hvdtune.tuner.results.dataframes import write_tables
    from hvdtune.tuner.storage.study_list import find_place, open_study

    opened = open_study(find_place(study, runs, _url(storage)))
    target = output or Path(Path(opened.place.name).absolute().name)
    for path in write_tables(opened.view, opened.document(), target, kind):
        print(path)
    return 0


@study.command()
@explained("study", metavar="STUDY", help="Run folder or, with --storage, name of a study.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@_runs
@_storage
def delete(study: str, *, yes: bool, runs: Path, storage: str | None) -> int:
    """Delete a study's files, or a study in a database, unless a tuner works on it."""
    from hvdtune.tuner.storage.deletion import delete_run, delete_stored, own_files
    from hvdtune.tuner.storage.shared_study import read_reference
    from hvdtune.tuner.storage.study_list import find_place

    url = _url(storage)
    place = find_place(study, runs, url)
    what = str(place)
    if place.folder is not None:
        what = f"{place.folder} ({counted(len(own_files(place.folder)), 'file')})"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                f"{what} was not deleted: there is no terminal to confirm it; add --yes"
            )
        if not click.confirm(f"delete {what}?", err=True):
            return 1
    if url is not None:
        delete_stored(url, place.name)
        return 0
    assert place.folder is not None
    try:
        reference = read_reference(place.folder)
    except StudyError:
        reference = None
    left = delete_run(place.folder)
    if left:
        few = _few(left, place.folder)
        info(f"{place.folder} still contains other files: {few}")
    if reference is not None:
        info(f"the shared study stays, because other tuners may use it: {reference}")
    return 0


@study.command()
@explained(
    "studies",
    nargs=-1,
    metavar="[STUDY]...",
    help="Run folders or, with --storage, names of studies. [default: all]",
)
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@_runs
@_storage
def fsck(studies: tuple[str, ...], *, repair: bool, runs: Path, storage: str | None) -> int:
    """Check studies against their logs; print one line per fault, with its remedy.

    The exit code is 1 if a fault is left.
    """
    from hvdtune.tuner.storage.study_list import find_place

    url = _url(storage)
    named = [find_place(name, runs, url) for name in studies]
    places = named or _places(runs, url)
    if not places:
        info(f"no studies in {runs if url is None else storage}")
    left = [_check(place, repair=repair) for place in places]
    return 1 if any(left) else 0


def _check(place: StudyPlace, *, repair: bool) -> bool:
    from hvdtune.tuner.storage.fsck import check
    from hvdtune.tuner.storage.study_list import is_in_use

    if repair and place.folder is not None and is_in_use(place.folder):
        raise StudyError(f"a tuner works in {place.folder}: stop it before you repair the study")
    faults = check(place)
    mended: set[str] = set()
    while repair:
        # Mending one fault may remove others: a new database has few of them.
        fault = next((each for each in faults if each.mend and each.text not in mended), None)
        if fault is None or fault.mend is None:
            break
        fault.mend()
        mended.add(fault.text)
        print(f"{place}: {fault.text}: repaired")
        faults = check(place)
    for fault in faults:
        print(f"{place}: {fault.text}: {fault.advice}")
    if not faults and not mended:
        print(f"{place}: no fault")
    return bool(faults)


def _places(runs: Path, url: sqlalchemy.URL | None) -> list[StudyPlace]:
    """Return all studies; the default folder may be missing, one that the user names may not."""
    from hvdtune.tuner.storage.study_list import run_places, stored_places

    if url is not None:
        return stored_places(url)
    if not runs.is_dir() and (runs.exists() or runs != _RUNS):
        raise UsageError(
            f"--runs {runs} {'is not a folder' if runs.exists() else 'does not exist'}"
        )
    return run_places(runs)


def _url(storage: str | None) -> sqlalchemy.URL | None:
    from hvdtune.tuner.storage.database import parse_url

    return None if storage is None else parse_url(storage)


def _few(paths: list[Path], folder: Path) -> str:
    names = [str(path.relative_to(folder)) for path in paths]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=1))
