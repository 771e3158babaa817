"""`hvdtune run`, `verify`, `aa`, `compare`: a request to its workflow, its result to the user."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from hvdtune.cli import handover
from hvdtune.cli.cluster.elastic import is_elastic
from hvdtune.cli.messages import TerminalReporter, info
from hvdtune.cli.parameters import spellings_of
from hvdtune.cli.resolve import Resolved, rank_variables, resolve
from hvdtune.core.config.environment import crowded_place, launch_defaults, node_meeting
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.launcher.nodes.slots import slots_of_node
from hvdtune.launcher.plan import build_command
from hvdtune.workflows.requests import ComparisonRequest, ElasticRequest, JobRequest, MpiRequest
from hvdtune.workflows.results import MeasuredRun, StudyResult
from hvdtune.workflows.run_folder import contents

if TYPE_CHECKING:
    from hvdtune.cli.options import RunOptions
    from hvdtune.core.config.meeting_point import MeetingPoint
    from hvdtune.launcher.nodes.way import NodeWay

_LAST_LINES: Final = 8
# What each node may have its own of
_OF_ONE_NODE: Final = ("slots_per_host", "network_interfaces", "workbench_python")


def run(options: RunOptions, words: Sequence[str]) -> int:
    """Runs what the options ask for; returns the exit code.

    Args:
        words: what they were made of.
    """
    point = None if options.hosts or options.hostfile else node_meeting()
    if point is not None:
        return _run_on_nodes(options, words, point)
    if (crowd := crowded_place()) is not None and crowd.rank == 0:
        info(
            f"{crowd.title} has started {crowd.size} of these, as far as it says not one on each "
            "host: each starts a job of its own"
        )
    return _run(options, words)


def _run_on_nodes(options: RunOptions, words: Sequence[str], point: MeetingPoint) -> int:
    """As one of the launchers of which a scheduler has started one on each host."""
    from hvdtune.launcher.nodes.gathering import gathered
    from hvdtune.launcher.nodes.serving import serve

    if options.mpi:
        raise UsageError("--mpi: start `hvdtune run --mpi` once, not on every node")
    if is_elastic(options):
        raise UsageError("--min-np: start an elastic `hvdtune run` once, not on every node")
    size, config = point.place.size or 1, launch_defaults(variables=rank_variables(options))
    timeout_s, asked = config.start_timeout_s, asked_alike(options, words[0])
    asked["the number of nodes"] = str(size)
    share = math.ceil(options.num_proc / size) if options.num_proc else slots_of_node()
    slots = options.slots_per_host or share
    if point.place.rank != 0:
        return serve(point, config.address, slots, timeout_s, asked, build_command(options.command))
    if handover.is_asked(options.workbench_python):
        # Now, since the connections to the other nodes would not survive it.
        alone = replace(options, hosts=f"localhost:{max(options.num_proc or 0, slots)}")
        _enter_workbench(resolve(alone), alone, words)
    with gathered(point, config.address, slots, timeout_s, asked) as nodes:
        hosts = ",".join(f"{host.name}:{host.slots}" for host in nodes.hosts)
        info(f"one of {size} nodes that {point.place.title} has started: {hosts}")
        try:
            nodes.exit_code = _run(replace(options, hosts=hosts), words, nodes.ways)
        except HvdtuneError as error:
            nodes.exit_code = error.exit_code
            raise
        return nodes.exit_code


def asked_alike(options: RunOptions, command: str) -> dict[str, str]:
    """What has to be asked for alike on all nodes, by option; only what differs from the defaults.

    Args:
        command: the one of hvdtune's that has these options.
    """
    asked = {"hvdtune": command, "the command": shlex.join(options.command)}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in ("command", *_OF_ONE_NODE) and value != field.default:
            is_flag = value is True
            asked[spellings_of(field)[0]] = "" if is_flag else str(value)
    return asked


def _run(
    options: RunOptions, words: Sequence[str], nodes: Mapping[str, NodeWay] | None = None
) -> int:
    request = resolve(options)
    handover.require_program(options.workbench_python)
    _enter_workbench(request, options, words)
    if nodes and isinstance(request.job, JobRequest):
        plan = replace(request.job.plan, nodes=nodes, remote=tuple(nodes))
        request = replace(request, job=replace(request.job, plan=plan))
    for notice in request.notices:
        info(notice)
    reporter = TerminalReporter(json_only=request.as_json)
    if isinstance(request.job, MpiRequest):
        from hvdtune.workflows.launch import run_by_mpi

        run_by_mpi(request.job, reporter, verbose=request.output.verbose)
    if isinstance(request.job, ElasticRequest):
        return _run_elastic(request, request.job, reporter)
    if request.comparison is not None:
        return _compare(request, request.job, request.comparison, reporter)
    if request.workflow == "tune":
        return _tune(request, request.job, reporter)
    return _launch(request, request.job, reporter)


def _enter_workbench(request: Resolved, options: RunOptions, words: Sequence[str]) -> None:
    """Goes on where the workbench is, if that is elsewhere and the request needs it."""
    if request.measures:
        handover.enter(f"`hvdtune {words[0]}` that measures", words, options.workbench_python)
    elif (request.trace.path or request.output.folder) and handover.is_asked(
        options.workbench_python
    ):
        handover.enter("a timeline", words, options.workbench_python)


def _run_elastic(request: Resolved, job: ElasticRequest, reporter: TerminalReporter) -> int:
    if request.workflow == "tune":
        from hvdtune.workflows.elastic.study import tune_elastic

        result = tune_elastic(job, request.study, request.trace, request.output, reporter)
        return _tell_of_study(result, request)
    if request.workflow == "autotune":
        from hvdtune.workflows.elastic.autotune import autotune_elastic

        given = request.study, request.trace, request.output
        return autotune_elastic(job, *given, reporter).exit_code
    from hvdtune.workflows.elastic.launch import launch_elastic

    return launch_elastic(job, request.trace, request.output, reporter).exit_code


def _launch(request: Resolved, job: JobRequest, reporter: TerminalReporter) -> int:
    if request.restart is not None:
        from hvdtune.workflows.restart import launch_target

        return launch_target(job, request.restart, request.output, reporter).exit_code
    if request.workflow == "autotune":
        from hvdtune.workflows.autotune import autotune

        return autotune(job, request.study, request.trace, request.output, reporter).exit_code
    from hvdtune.workflows.launch import launch

    return launch(job, request.trace, request.output, reporter).exit_code


def _tune(request: Resolved, job: JobRequest, reporter: TerminalReporter) -> int:
    as_json = request.as_json
    if request.restart is not None:
        from hvdtune.workflows.restart import tune_by_restarting

        study, output = request.study, request.output
        result = tune_by_restarting(job, study, request.restart, output, reporter)
        _print(result, result.document(), as_json=as_json)
        advice = "its own setting is the one to use"
        if result.usage:
            advice = f"to run it with this setting:\n    {result.usage}"
        page = sys.stderr if as_json else sys.stdout
        print(f"the command is not started again; {advice}", file=page)
        return result.verdict.exit_code
    from hvdtune.workflows.two_scopes import tune

    return _tell_of_study(
        tune(job, request.study, request.trace, request.output, reporter), request
    )


def _tell_of_study(result: StudyResult, request: Resolved) -> int:
    document = {**result.document(), "script_exit_code": result.exit_code}
    _print(result, document, as_json=request.as_json, tail=not request.output.verbose)
    # A script that fails is what its owner has to know first.
    return result.exit_code or result.verdict.exit_code


def _compare(
    request: Resolved, job: JobRequest, comparison: ComparisonRequest, reporter: TerminalReporter
) -> int:
    from hvdtune.workflows.comparison import compare, compare_by_restarting

    as_json = request.as_json
    if request.restart is not None:
        result = compare_by_restarting(job, comparison, request.restart, request.output, reporter)
        _print(result, result.document(), as_json=as_json)
    else:
        result = compare(job, comparison, request.trace, request.output, reporter)
        tail = not request.output.verbose
        _print(result, result.document(), as_json=as_json, tail=tail)
    return result.verdict.exit_code


def _print(
    result: MeasuredRun, document: dict[str, Any], *, as_json: bool, tail: bool = False
) -> None:
    """Prints the verdict and the files; with --json the document is all that stdout gets."""
    page = sys.stderr if as_json else sys.stdout
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
