"""`hvdtune run`, `verify`, `aa`, `compare`: request, workflow and printed result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TextIO

from hvdtune.cli import handover
from hvdtune.cli.checks import check, restarts
from hvdtune.cli.cluster.nodes import asked_alike, node_terms
from hvdtune.cli.messages import TerminalReporter, info
from hvdtune.cli.placement import choose_hosts, placed_on
from hvdtune.cli.request import (
    job_of,
    measurement_of,
    notices,
    output_of,
    rank_variables,
    tunes_communication,
)
from hvdtune.core.config.environment import crowded_place, node_meeting
from hvdtune.launcher.nodes.gathering import gathered
from hvdtune.launcher.nodes.serving import serve
from hvdtune.launcher.plan import build_command
from hvdtune.workflows.requests import (
    ComparisonRequest,
    JobRequest,
    MpiRequest,
    RunRequest,
)
from hvdtune.workflows.results import LaunchResult, MeasuredRun
from hvdtune.workflows.run_folder import contents

if TYPE_CHECKING:
    from hvdtune.cli.options import RunOptions

_LAST_LINES: Final = 8


def run(options: RunOptions, words: Sequence[str]) -> int:
    """Run the job that the options ask for; return the exit code.

    Args:
        words: the command line of the options.
    """
    check(options)
    variables, measurement = rank_variables(options), measurement_of(options)
    output, remarks = output_of(options.output, options.timeline), [*notices(options)]
    asked, terms = options.placement, None
    if not (asked.hosts or asked.hostfile) and (point := node_meeting()) is not None:
        shared = asked_alike(options, words[0])
        terms = node_terms(point, shared, variables, asked.num_proc, asked.slots_per_host)
    if terms is not None and terms.point.place.rank != 0:
        return serve(terms, build_command(options.command))
    # Before the nodes meet: their connections would not survive it.
    handover.enter_for_run(
        options.output.workbench_python,
        words,
        measures=measurement is not None,
        records=bool(options.timeline.timeline_filename or options.output.output_dir),
    )
    with nullcontext() if terms is None else gathered(terms) as nodes:
        if nodes is not None and terms is not None:
            place = placed_on(nodes.hosts, asked.num_proc, nodes.ways)
            title, count = terms.point.place.title, len(nodes.hosts)
            info(f"{title} started hvdtune on {count} nodes: {place.words[-1]}")
        else:
            place = choose_hosts(
                asked,
                restarts=restarts(options),
                tunes=tunes_communication(options),
                discovers=options.elastic.host_discovery_script is not None,
            )
        request = RunRequest(job_of(options, place, variables), measurement, output)
        remarks.insert(0, place.notice)
        code = _perform(request, remarks, as_json=options.output.as_json)
        if nodes is not None:
            nodes.exit_code = code
    return code


def _perform(request: RunRequest, remarks: Iterable[str], *, as_json: bool) -> int:
    for remark in filter(None, remarks):
        info(remark)
    if (crowd := crowded_place()) is not None and crowd.rank == 0:
        info(
            f"{crowd.title} started {crowd.size} copies of `hvdtune run`, apparently not one per "
            "host; each copy starts its own job"
        )
    reporter = TerminalReporter(json_only=as_json)
    if isinstance(request.job, MpiRequest):
        from hvdtune.workflows.launch import run_by_mpi

        run_by_mpi(request, reporter)
    if request.measurement is None:
        from hvdtune.workflows.launch import launch

        return launch(request, reporter).exit_code
    restarted = isinstance(request.job, JobRequest) and request.job.restart is not None
    tail = not request.output.verbose and not restarted
    if isinstance(request.measurement, ComparisonRequest):
        from hvdtune.workflows.compare import compare

        compared = compare(request, reporter)
        _print(compared, compared.document(), as_json=as_json, tail=tail)
        return compared.verdict.exit_code
    from hvdtune.workflows.tune import tune

    result = tune(request, reporter)
    if isinstance(result, LaunchResult):
        return result.exit_code
    if not restarted:
        document = {**result.document(), "script_exit_code": result.exit_code}
        _print(result, document, as_json=as_json, tail=tail)
        # The owner of a script has to learn of its failure first.
        return result.exit_code or result.verdict.exit_code
    _print(result, result.document(), as_json=as_json)
    advice = "the default setting is the one to use"
    if result.usage:
        advice = f"to run it with this setting:\n    {result.usage}"
    print(f"the command is not started again; {advice}", file=_page(as_json=as_json))
    return result.verdict.exit_code


def _print(
    result: MeasuredRun, document: dict[str, Any], *, as_json: bool, tail: bool = False
) -> None:
    """Print the verdict and the files; with --json, stdout gets only the document."""
    page = _page(as_json=as_json)
    if tail and result.tail:
        rank = result.tail_rank
        print(f"last lines of rank {rank} (launch {result.launch}):", file=page)
        for line in result.tail[-_LAST_LINES:]:
            print(f"    {line}", file=page)
    print(f"verdict: {document['text']}", file=page)
    for name in ("in_use", "advice"):
        if document.get(name):
            print(document[name], file=page)
    for path, meaning in contents(result.run_dir):
        print(f"    {path}  {meaning}", file=page)
    if as_json:
        print(json.dumps({**document, "run": str(result.run_dir)}))


def _page(*, as_json: bool) -> TextIO:
    return sys.stderr if as_json else sys.stdout
