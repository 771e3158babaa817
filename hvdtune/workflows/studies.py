"""How a study is composed: its folder, its launches, what it is given, where its progress goes."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import storage_url
from hvdtune.core.config.knobs import Knob, Setting, load_knobs
from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import ArgumentError, HvdtuneError
from hvdtune.launcher.output import Writer
from hvdtune.launcher.rank_files import rank_files
from hvdtune.launcher.run import Job
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.measure.run import JobInfo
from hvdtune.tuner.results.earlier_studies import past_of
from hvdtune.tuner.results.fingerprint import parse_fingerprint
from hvdtune.tuner.search.known_setting import KnownSetting
from hvdtune.tuner.search.samplers import check_sampler, default_sampler
from hvdtune.tuner.space.objectives import check_objectives
from hvdtune.tuner.space.space_file import read_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.database import parse_url, shown_url
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.launches import Launches, Starter, live_starter
from hvdtune.workflows.requests import (
    ElasticRequest,
    JobRequest,
    OutputRequest,
    StatusReporter,
    StudyRequest,
    TraceRequest,
)
from hvdtune.workflows.run_folder import (
    RUNS,
    RunFolder,
    RunIdentity,
    fresh_path,
    given_variables,
    latest_unfinished,
)
from hvdtune.workflows.traces import write_traces

# Per rank; the merged trace is about four times as large.
_TIMELINE_MB: Final = 16.0
_NAME_DIGITS: Final = 8


@dataclass(frozen=True)
class StudyParts:
    """What a study is made of.

    `identity` is what run.json says of it, `fingerprint` is asked once the folder is open.
    `restarts` says that every block is a launch of its own; then nothing is recorded, and `world`
    is the job of each launch, None where that is not known.
    """

    starter: Starter[Any]
    default: Setting
    identity: Mapping[str, Any]
    fingerprint: Callable[[], Mapping[str, Any]]
    knobs: Sequence[Knob] = field(default_factory=load_knobs)
    first_settings: Callable[[Mapping[str, Any]], Sequence[Setting]] = lambda known: ()
    share: SharedStudy | None = None
    restarts: bool = False
    world: JobInfo | None = None


@dataclass(frozen=True)
class StudyRun:
    """A study that can begin. `close_view` gives the terminal back before the study ends."""

    study: Study
    folder: RunFolder
    launches: Launches[Any]
    show: Callable[[StudyProgress], None]
    close_view: Callable[[], None]


def live_parts(
    job: JobRequest,
    default: Setting,
    identity: Mapping[str, Any],
    probe: StatusReporter | None = None,
) -> StudyParts:
    """The parts of a study in a live run; with `probe` the link is measured first."""
    return StudyParts(
        live_starter(job.plan, job.options),
        default,
        identity,
        lambda: fingerprint(job.plan, job.options, probe),
    )


@contextmanager
def open_study(
    parts: StudyParts,
    job: JobRequest,
    output: OutputRequest,
    reporter: StatusReporter,
    folder: RunFolder | None = None,
) -> Iterator[StudyRun]:
    """A study of the job in its run folder, or in `folder`. Leaving it leaves no process."""
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(open_folder(job, parts.identity, output, reporter))
        view = ExitStack()
        stack.enter_context(view)
        progress = view.enter_context(reporter.progress(parts.default))
        writers: list[Writer] = [progress.write] if output.verbose else []
        if output.rank_files is not None:
            writers.append(stack.enter_context(rank_files(output.rank_files, len(job.plan.slots))))
        launches = Launches(parts.starter, folder, writers, record=not parts.restarts)
        stack.enter_context(launches)
        study = compose(parts, job, launches)
        try:
            yield StudyRun(study, folder, launches, progress.show, view.close)
        except Stopped:
            view.close()
            reporter.info(f"the same command continues this study in {folder.path}")
            raise


def compose(parts: StudyParts, job: JobRequest, launches: Launches[Any]) -> Study:
    """The Study that the tuner is given."""
    known = parts.fingerprint()
    return Study(
        start_job=(
            ByRestarting(launches.start, parts.world)
            if parts.restarts
            else functools.partial(launches.start, parts.default)
        ),
        knobs=parts.knobs,
        default=parts.default,
        hosts=len(job.hosts),
        fingerprint=known,
        first_settings=parts.first_settings(known),
        host=LocalHost(has_all_ranks=parts.restarts or not job.plan.remote),
        traces=launches.traces(len(job.plan.slots)),
        share=parts.share,
    )


def known_of_job(
    study: Study, folder: Path, job: RunIdentity, say: Callable[[str], None]
) -> KnownSetting | None:
    """What earlier studies of the job, in `runs/` or beside this one's folder, have ended with.

    Says why what the same command has left there is not taken over.
    """
    parents = {RUNS, folder.parent} if study.share is None else set()
    here = parse_fingerprint(study.fingerprint or {})
    past = past_of(job.to_json(), here, parents, folder)
    if past.refused:
        say(f"{past.refused}; nothing of it is taken over")
    return past.known


def recorded(job: JobRequest) -> JobRequest:
    """The job with the limit that the raw traces of a study have by default."""
    options = replace(job.options, timeline_max_mb=job.options.timeline_max_mb or _TIMELINE_MB)
    return replace(job, options=options)


def form_timeout_s(job: JobRequest) -> float:
    """How long the tuner waits for a job whose ranks may take their time to find each other."""
    return max(TuneOptions.form_timeout_s, job.options.start_timeout_s + 30)


def merge_last_launch(
    run: StudyRun, trace: TraceRequest, reporter: StatusReporter, *, ended: bool = False
) -> dict[str, Any]:
    """Merges the traces of the last launch; returns the fields of MeasuredRun.

    `ended`: the launch was ended, not the script.
    """
    job = run.launches.latest
    assert isinstance(job, Job)
    if job.write_error:
        reporter.warning(job.write_error)
    report = job.poll()
    rank = 0 if ended or report is None else report.rank
    traces: tuple[Path, ...] = ()
    try:
        raw = run.folder.ranks(run.launches.number)
        traces = write_traces(raw, trace.path or run.folder.trace, trace, reporter, ended=ended)
    except HvdtuneError as error:
        reporter.warning(f"no merged trace: {error}")
    return {
        "run_dir": run.folder.path,
        "launch": run.launches.number,
        "traces": traces,
        "tail": job.tail(rank),
        "tail_rank": rank,
    }


def named_knobs(study: StudyRequest) -> tuple[str, ...] | None:
    """The knobs to be searched, None where all are meant. Raises UsageError."""
    if study.knobs is None:
        return None
    if not any(study.knobs):
        raise ArgumentError("knobs", "no knob is named; leave it out to search all of them")
    if not all(study.knobs):
        raise ArgumentError("knobs", "a name is empty", f"'{','.join(study.knobs)}'")
    return tuple(dict.fromkeys(study.knobs))


def search_options(study: StudyRequest) -> dict[str, Any]:
    """Fields of TuneOptions for a live run. Raises UsageError for what cannot be."""
    objectives = check_objectives(list(study.objectives))
    tunable = named_knobs(study)
    share = study.probe_share
    return {
        "probe_share": TuneOptions.probe_share if share is None else share,
        "tunable": tunable,
        "objectives": objectives,
        **sampling(study, load_knobs(), tunable or (), len(objectives)),
        "train_steps": study.train_steps,
    }


def sampling(
    study: StudyRequest, knobs: Sequence[Knob], tunable: Sequence[str], objectives: int
) -> dict[str, Any]:
    """The fields of TuneOptions about the sampler. Raises UsageError for what cannot be."""
    sampler = study.sampler or default_sampler(objectives)
    check_sampler(sampler, objectives)
    ranges = {} if study.space is None else read_space(study.space, knobs)
    left_out = sorted({*ranges} - {*tunable})
    if study.knobs is not None and left_out:
        wrong = f"it names {left_out[0]}, which is not among the knobs to be searched"
        raise ArgumentError("space", wrong, study.space)
    return {"sampler": sampler, "ranges": ranges, "step_budget": study.step_budget}


def searched(
    study: StudyRequest, job: JobRequest | ElasticRequest, default: Setting
) -> dict[str, Any]:
    """The search space as run.json has it."""
    return {
        "default": dict(default),
        "knobs": None if study.knobs is None else ",".join(study.knobs),
        "fix": sorted(job.values.fix),
        "space": None if study.space is None else study.space.read_text(encoding="utf-8"),
    }


def chosen_share(
    request: StudyRequest, job: JobRequest, study: Mapping[str, Any], reporter: StatusReporter
) -> SharedStudy | None:
    """The study that the request or HVDTUNE_STORAGE names; None: the run folder has its own.

    Without a name tuners that do the same meet: it has a digest of the command, the places of its
    ranks and what is searched. Raises UsageError for a URL that cannot be.

    Args:
        study: what is searched, as run.json has it.
    """
    url = request.storage or storage_url()
    if url is None:
        return None
    parse_url(url)
    # What the link gives changes from minute to minute.
    known = fingerprint(job.plan, job.options)
    same = {"command": known["command"], "slots": known["slots"], **study}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
    name = request.name or f"{Path(job.plan.title).stem}-{digest[:_NAME_DIGITS]}"
    reporter.info(f"study {name} in {shown_url(url)}")
    return SharedStudy(url, name, {**known, "study": dict(study)})


def describe_share(share: SharedStudy | None) -> dict[str, str]:
    """The entries of run.json: a run is continued in the same study only."""
    return {} if share is None else {"storage": shown_url(share.url), "name": share.study}


def run_identity(job: JobRequest, study: Mapping[str, Any] | None = None) -> RunIdentity:
    """The identity of this job's run folder.

    Its variables are those that the job is given and would not have inherited.
    """
    variables = given_variables(job.options.environ)
    return RunIdentity(job.words, tuple(slot.host for slot in job.plan.slots), study, variables)


def open_folder(
    job: JobRequest, study: Mapping[str, Any], output: OutputRequest, reporter: StatusReporter
) -> RunFolder:
    """The folder asked for, else of the latest unfinished run of this study, else a new one."""
    identity = run_identity(job, study)
    found = None if output.folder else latest_unfinished(identity)
    if found is not None:
        reporter.info(
            f"continuing the unfinished study in {found}; another folder begins a new one"
        )
    folder = RunFolder(output.folder or found or fresh_path(job.plan.title), identity)
    reporter.info(f"run folder {folder.path}")
    return folder
