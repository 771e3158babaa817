"""Studies of a session: options, identity and the inputs of the tuner."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import read_setting, storage_url
from hvdtune.core.config.knobs import (
    Knob,
    Setting,
    Value,
    default_setting,
    load_knobs,
    parse_assignments,
)
from hvdtune.errors import ArgumentError
from hvdtune.launcher.hosts import remote_hosts
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.measure.trace_files import RawTraces
from hvdtune.tuner.results.earlier_studies import past_of
from hvdtune.tuner.results.fingerprint import parse_fingerprint
from hvdtune.tuner.search.samplers import check_sampler, default_sampler
from hvdtune.tuner.space.objectives import check_objectives
from hvdtune.tuner.space.space_file import read_space
from hvdtune.tuner.space.tune_options import ONE_RUN, LimitOptions, TuneOptions
from hvdtune.tuner.storage.database import parse_url, shown_url
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.study import EarlierRuns, Study
from hvdtune.workflows.fingerprint import fingerprint, software
from hvdtune.workflows.requests import JobRequest, StatusReporter, StudyRequest
from hvdtune.workflows.run_folder import RUNS
from hvdtune.workflows.session import Session, run_identity

if TYPE_CHECKING:
    from hvdtune.workflows.restart import RestartTarget

# Per rank; the merged trace is about four times as large.
RECORDING_MB: Final = 16.0
_NAME_DIGITS: Final = 8
# Hosts may join an elastic job, and with several hosts more knobs can be searched.
_HOSTS_AT_MOST: Final = 2
# Horovod's default number of trials. Training continues meanwhile, so the time is not limited.
_BACKGROUND_TRIALS: Final = 20
_BACKGROUND_BUDGET_S: Final = 86400.0


def start_setting(job: JobRequest) -> dict[str, Value]:
    """Return the complete setting that the job starts with. Raises UsageError."""
    return default_setting() | read_setting() | job.values.core_setting()


def live_options(job: JobRequest, study: StudyRequest, default: Setting) -> TuneOptions:
    """Return the options of a study in a live run. Raises UsageError if it cannot be searched."""
    options = TuneOptions(limits=LimitOptions(form_s=form_timeout_s(job)))
    keep = study.keep_timelines
    fixed = tuple(parse_assignments(job.values.fix))
    trials, budget_s = TuneOptions.trials, TuneOptions.time_budget_s
    is_elastic = job.elastic is not None
    if is_elastic or study.in_background:
        options = ONE_RUN
    if study.in_background:
        # As in Horovod, a knob with a value from the user is fixed.
        fixed = tuple(read_setting() | job.values.core_setting())
        trials, budget_s = _BACKGROUND_TRIALS, _BACKGROUND_BUDGET_S
    options = replace(
        options,
        **_search_options(study),
        trials=study.trials or trials,
        time_budget_s=study.time_budget_s or budget_s,
        seed=study.seed,
        fixed=fixed,
        watch_drift=not study.no_drift,
        use_earlier=not study.ignore_earlier,
        is_elastic=is_elastic,
        keep_timelines=0 if is_elastic else TuneOptions.keep_timelines if keep is None else keep,
    )
    hosts = _HOSTS_AT_MOST if is_elastic else len(job.hosts)
    options.space(load_knobs(), default, hosts, awaits_script=not is_elastic)
    return options


def form_timeout_s(job: JobRequest) -> float:
    """Return how long the tuner waits until the ranks of a job of fixed size have met."""
    if job.elastic is not None:
        return TuneOptions.limits.form_s
    return max(TuneOptions.limits.form_s, job.options.start_timeout_s + 30)


def live_study(
    session: Session,
    study: StudyRequest,
    default: Setting,
    identity: Mapping[str, Any],
    probe: StatusReporter | None = None,
    share: SharedStudy | None = None,
) -> Study:
    """Return a study of the session's job in live runs, with the results of earlier studies.

    Args:
        default: the setting that the job starts with.
        identity: the search as run.json contains it.
        probe: reports errors while the link between the ranks is measured; None: not measured.
        share: the study in a database.
    """
    if session.job.elastic is not None:
        return _elastic_study(session, study, default, identity)
    tuned = replace(job_study(session, default, probe), share=share)
    if study.ignore_earlier:
        return tuned
    return with_known(tuned, session, identity)


def _elastic_study(
    session: Session, study: StudyRequest, default: Setting, identity: Mapping[str, Any]
) -> Study:
    """Return the study without the ranks: the tuner learns them when they have formed."""
    from hvdtune.workflows.elastic_job import ElasticStarter

    job, starter = session.job, session.starter
    assert isinstance(starter, ElasticStarter)
    discovery, parents = starter.discovery, (RUNS, session.folder.path.parent)
    earlier = EarlierRuns(run_identity(job, identity).to_json(), parents)
    return Study(
        # The run folder counts the launches; the tuner counts those of each membership.
        start_job=lambda launch: session.start(default),
        knobs=load_knobs(),
        default=default,
        fingerprint=software(job.plan.command),
        first_settings=[default_setting()],  # without this user's settings
        host=LocalHost(has_all_ranks=discovery.is_fixed and not remote_hosts(discovery.found)),
        earlier=None if study.ignore_earlier else earlier,
    )


def job_study(session: Session, default: Setting, probe: StatusReporter | None) -> Study:
    """Return a study in live runs of the session's job of fixed size; see `live_study`."""
    job = session.job
    traces = RawTraces(session.folder.path, session.ranks) if session.records else None
    return Study(
        start_job=functools.partial(session.start, default),
        knobs=load_knobs(),
        default=default,
        hosts=len(job.hosts),
        fingerprint=fingerprint(job.plan, job.options, probe),
        host=LocalHost(has_all_ranks=not job.plan.remote),
        traces=traces,
    )


def restart_study(session: Session, found: RestartTarget, default: Setting) -> Study:
    """Return a study in which each measurement is a launch of the command."""
    job = session.job
    session.starter, session.records = found.starter, False
    return Study(
        start_job=ByRestarting(session.start, found.world(job)),
        knobs=found.target.knobs,
        default=default,
        hosts=len(job.hosts),
        fingerprint=found.fingerprint(job, session.reporter),
        first_settings=[found.usual],
        host=LocalHost(has_all_ranks=True),
    )


def with_known(tuned: Study, session: Session, identity: Mapping[str, Any]) -> Study:
    """Return the study with the result of earlier studies of the same job.

    They are in `runs/` or next to this run folder. If the same command left results that are not
    reused, the reason is reported.
    """
    folder = session.folder.path
    parents = {RUNS, folder.parent} if tuned.share is None else set()
    here = parse_fingerprint(tuned.fingerprint or {})
    past = past_of(run_identity(session.job, identity).to_json(), here, parents, folder)
    if past.refused:
        session.reporter.info(f"{past.refused}; its results are not reused")
    return replace(tuned, known=past.known)


def named_knobs(study: StudyRequest) -> tuple[str, ...] | None:
    """Return the knobs to search, None for all. Raises UsageError."""
    if study.knobs is None:
        return None
    if not any(study.knobs):
        raise ArgumentError("knobs", "no knob is named; omit it to search all knobs")
    if not all(study.knobs):
        raise ArgumentError("knobs", "a name is empty", f"'{','.join(study.knobs)}'")
    return tuple(dict.fromkeys(study.knobs))


def _search_options(study: StudyRequest) -> dict[str, Any]:
    objectives, tunable = check_objectives(list(study.objective)), named_knobs(study)
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
    """Return the fields of TuneOptions about the sampler. Raises UsageError."""
    sampler = study.sampler or default_sampler(objectives)
    check_sampler(sampler, objectives)
    ranges = {} if study.space is None else read_space(study.space, knobs)
    left_out = sorted({*ranges} - {*tunable})
    if study.knobs is not None and left_out:
        wrong = f"{left_out[0]} is not one of the knobs to search"
        raise ArgumentError("space", wrong, study.space)
    return {"sampler": sampler, "ranges": ranges, "step_budget": study.step_budget}


def searched(study: StudyRequest, job: JobRequest, default: Setting) -> dict[str, Any]:
    """Return the search space as run.json contains it."""
    return {
        "default": dict(default),
        "knobs": None if study.knobs is None else ",".join(study.knobs),
        "fix": sorted(job.values.fix),
        "space": None if study.space is None else study.space.read_text(encoding="utf-8"),
    }


def chosen_share(
    request: StudyRequest, job: JobRequest, identity: Mapping[str, Any], reporter: StatusReporter
) -> SharedStudy | None:
    """Return the study that the request or HVDTUNE_STORAGE names; None: the run folder's own.

    The name of a study without one contains a digest of the command, the places of its ranks and
    the search: tuners that search the same share it. Raises UsageError for an invalid URL.

    Args:
        identity: the search as run.json contains it.
    """
    url = request.storage or storage_url()
    if url is None:
        return None
    parse_url(url)
    # Without the link, whose figures change from minute to minute.
    known = fingerprint(job.plan, job.options)
    same = {"command": known["command"], "slots": known["slots"], **identity}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
    name = request.study_name or f"{Path(job.plan.title).stem}-{digest[:_NAME_DIGITS]}"
    reporter.info(f"study {name} in {shown_url(url)}")
    return SharedStudy(url, name, {**known, "study": dict(identity)})


def describe_share(share: SharedStudy | None) -> dict[str, str]:
    """Return the entries of run.json: a run continues only in the same study."""
    return {} if share is None else {"storage": shown_url(share.url), "name": share.study}
