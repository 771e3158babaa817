"""What the second part of a study in two scopes is given by the first."""

from types import MappingProxyType

from hvdtune.cli import app
from hvdtune.cli.placement import choose_hosts
from hvdtune.cli.request import job_of, measurement_of
from hvdtune.core.config.knobs import default_setting, load_knobs
from hvdtune.tuner.space.search_space import ALL_SCOPES
from hvdtune.tuner.space.targets import narrowed, target_of, with_native
from hvdtune.workflows.restart import RestartTarget
from hvdtune.workflows.restart_study import changed_by, options_of_second

KNOBS = "live,ddp_bucket_cap_mb"
DDP = ("ddp_bucket_cap_mb",)
OF_SCRIPT = {"ddp_bucket_cap_mb": 50.0, "ddp_first_bucket_mb": 50.0}


def found_target():
    table = narrowed(target_of("hvdtune", {}, core_knobs=load_knobs()), DDP)
    target = with_native(table, OF_SCRIPT)
    return RestartTarget(target, None, dict(target.native), MappingProxyType({}))


def second_space(changed):
    words = ["--trials", "4", "--time-budget", "60", "--launch-time", "0.5", "--knobs", KNOBS]
    asked = app.parse(["run", "-np", "1", *words, "true"])
    job, study = job_of(asked, choose_hosts(asked.placement), {}), measurement_of(asked)
    options = options_of_second(job, study, found_target(), DDP, changed)
    assert (options.trials, options.time_budget_s, options.blocks.seconds) == (4, 60.0, 0.5)
    found = found_target()
    return options.space(found.target.knobs, found.reference, 1, ALL_SCOPES)


def test_it_searches_buckets_with_and_without_what_the_live_run_ended_with():
    ended_with = default_setting() | {"chunk_bytes": 65536, "cycle_time_ms": 0.5}
    changed = changed_by(found_target(), {**ended_with, "a_knob_of_the_script": 3})
    assert changed == {"chunk_bytes": 65536, "cycle_time_ms": 0.5}
    space = second_space(changed)
    assert {axis.knob.name: len(axis.choices) for axis in space.axes} == {
        "ddp_bucket_cap_mb": 0,
        "chunk_bytes": 2,
        "cycle_time_ms": 2,
    }
    assert space.default == {**default_setting(), **OF_SCRIPT}
    assert space.adopt({**space.default, **changed}) == {**space.default, **changed}


def test_it_searches_buckets_alone_where_the_live_run_ended_with_the_default():
    assert changed_by(found_target(), default_setting()) == {}
    assert [axis.knob.name for axis in second_space({}).axes] == ["ddp_bucket_cap_mb"]
