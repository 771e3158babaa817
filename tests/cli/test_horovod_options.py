"""Every option of horovodrun is accepted, or refused with a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hvdtune.cli import app
from hvdtune.cli.checks import check
from hvdtune.cli.options import RunOptions
from hvdtune.cli.parameters import values_of
from hvdtune.cli.placement import ChosenHosts
from hvdtune.cli.request import job_of, notices, output_of, rank_variables, setting_of
from hvdtune.cli.run_command import horovod_rows
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import Refused
from hvdtune.launcher.hosts import Host

# horovodrun 0.28.1: the words, and a field of the options with what it then is.
_ACCEPTED = [
    ("-np 3", "num_proc", 3),
    ("--num-proc 3", "num_proc", 3),
    ("--disable-cache", "disable_cache", True),
    ("--start-timeout 60", "start_timeout", 60.0),
    ("--network-interfaces lo,eth1", "network_interfaces", "lo,eth1"),
    ("--network-interface lo", "network_interfaces", "lo"),
    ("--output-filename out", "output_filename", Path("out")),
    ("--verbose", "verbose", True),
    ("-p 2222", "ssh_port", 2222),
    ("--ssh-port 2222", "ssh_port", 2222),
    ("-i key", "ssh_identity_file", "key"),
    ("--ssh-identity-file key", "ssh_identity_file", "key"),
    ("--fusion-threshold-mb 32", "fusion_threshold_mb", 32.0),
    ("--cycle-time-ms 2.5", "cycle_time_ms", 2.5),
    ("--cache-capacity 9", "cache_capacity", 9),
    ("--hierarchical-allreduce", "hierarchical_allreduce", True),
    ("--no-hierarchical-allreduce", "hierarchical_allreduce", False),
    ("--hierarchical-allgather", "hierarchical_allgather", True),
    ("--no-hierarchical-allgather", "hierarchical_allgather", False),
    ("--torus-allreduce", "torus_allreduce", True),
    ("--no-torus-allreduce", "torus_allreduce", False),
    ("--autotune", "autotune", True),
    ("--no-autotune", "autotune", False),
    ("--autotune-log-file a.csv", "autotune_log_file", Path("a.csv")),
    ("--autotune-warmup-samples 0", "autotune_warmup_samples", 0),
    ("--autotune-steps-per-sample 5", "autotune_steps_per_sample", 5),
    ("--autotune-bayes-opt-max-samples 7", "autotune_bayes_opt_max_samples", 7),
    ("--autotune-gaussian-process-noise 0.3", "autotune_gaussian_process_noise", 0.3),
    ("--timeline-filename t.json", "timeline_filename", Path("t.json")),
    ("--timeline-mark-cycles", "timeline_mark_cycles", True),
    ("--no-timeline-mark-cycles", "timeline_mark_cycles", False),
    ("--stall-check", "stall_check", True),
    ("--no-stall-check", "stall_check", False),
    ("--stall-check-warning-time-seconds 60", "stall_check_warning_time_seconds", 60.0),
    ("--stall-check-shutdown-time-seconds 0", "stall_check_shutdown_time_seconds", 0.0),
    ("--mpi-threads-disable", "mpi_threads_disable", True),
    ("--no-mpi-threads-disable", "mpi_threads_disable", False),
    ("--mpi-args=--oversubscribe", "mpi_args", "--oversubscribe"),
    ("--tcp", "tcp", True),
    ("--binding-args=--bind-to core", "binding_args", "--bind-to core"),
    ("--num-nccl-streams 2", "num_nccl_streams", 2),
    ("--thread-affinity 1", "thread_affinity", "1"),
    ("--gloo-timeout-seconds 99", "gloo_timeout_seconds", 99.0),
    ("--log-level TRACE", "log_level", "debug"),
    ("--log-level FATAL", "log_level", "error"),
    ("--log-with-timestamp", "log_timestamp", True),
    ("--log-without-timestamp", "log_timestamp", False),
    ("--log-hide-timestamp", "log_hide_timestamp", True),
    ("--no-log-hide-timestamp", "log_hide_timestamp", False),
    ("-prefix-timestamp", "prefix_output_with_timestamp", True),
    ("--prefix-output-with-timestamp", "prefix_output_with_timestamp", True),
    ("-H localhost:2", "hosts", "localhost:2"),
    ("--hosts localhost:2", "hosts", "localhost:2"),
    ("-hostfile hosts", "hostfile", Path("hosts")),
    ("--hostfile hosts", "hostfile", Path("hosts")),
    ("--slots-per-host 2", "slots_per_host", 2),
    ("--min-np 2", "min_num_proc", 2),
    ("--min-num-proc 2", "min_num_proc", 2),
    ("--max-np 2 --min-np 1", "max_num_proc", 2),
    ("--max-num-proc 2 --min-np 1", "max_num_proc", 2),
    ("--elastic-timeout 5", "elastic_timeout", 5.0),
    ("--reset-limit 5 --min-np 1", "reset_limit", 5),
    ("--blacklist-cooldown-range 10 100 --min-np 1", "blacklist_cooldown_range", (10, 100)),
    ("--host-discovery-script ./hosts.sh", "host_discovery_script", "./hosts.sh"),
    ("--gloo", "gloo", True),
    ("--mpi", "mpi", True),
]
_REFUSED = {
    "--jsrun": "LSF's jsrun",
}
# Those that print and end.
_PAGES = {"-v": "hvdtune ", "--version": "hvdtune ", "-cb": "[X] Gloo", "--check-build": "[X] Gloo"}


def words(text):
    option, equals, value = text.partition("=")
    return [f"{option}={value}"] if equals else text.split()


def parse(*arguments):
    return app.parse(["run", *arguments, "train.py"])


def options_of(host, *arguments):
    options = app.parse(["run", *arguments, "true"])
    return job_of(options, ChosenHosts((host,)), rank_variables(options)).options


@pytest.mark.parametrize(("text", "field", "value"), _ACCEPTED)
def test_an_option_is_accepted_as_horovodrun_takes_it(text, field, value):
    options = parse(*words(text))
    check(options)
    assert isinstance(options, RunOptions)
    assert values_of(options)[field] == value
    assert options.command == ["train.py"]


@pytest.mark.parametrize(("text", "why"), _REFUSED.items())
def test_what_comes_later_is_refused_in_one_sentence(text, why):
    with pytest.raises(UsageError, match=rf"^--[\w-]+: .*{why}.*; this is hvdtune \d") as raised:
        check(parse(*words(text)))
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(("option", "part"), _PAGES.items())
def test_a_page_needs_no_script(option, part, capsys):
    assert app.parse(["run", option]) == 0
    assert part in capsys.readouterr().out


def test_the_two_lists_are_all_options():
    tested = {words(text)[0].partition("=")[0] for text in [row[0] for row in _ACCEPTED]}
    tested |= {text.partition(" ")[0] for text in _REFUSED} | set(_PAGES)
    for name, (spelling, effect) in horovod_rows().items():
        assert spelling in tested or name in ("controller", "config_file"), name
        assert isinstance(effect, Refused) == any(row.startswith(spelling) for row in _REFUSED)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ("--start-timeout 60 --gloo-timeout-seconds 9", {"HVDTUNE_START_TIMEOUT_S": "60"}),
        ("--gloo-timeout-seconds 9", {"HVDTUNE_START_TIMEOUT_S": "9"}),
        ("--network-interfaces lo,eth1", {"HVDTUNE_INTERFACE": "lo"}),
        (
            "--no-stall-check",
            {"HOROVOD_STALL_CHECK_DISABLE": "1", "HVDTUNE_HANG_WARNING_S": "0"},
        ),
        ("--stall-check", {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
        ("--stall-check-warning-time-seconds 60", {"HVDTUNE_HANG_WARNING_S": "60"}),
        ("--stall-check-shutdown-time-seconds 0", {"HVDTUNE_HANG_ABORT_S": "0"}),
        ("--log-level INFO", {"HVDTUNE_LOG_LEVEL": "info"}),
        ("--thread-affinity 1,0", {"HVDTUNE_THREAD_AFFINITY": "1,0"}),
        ("--transport tcp --heartbeat-timeout 3",
         {"HVDTUNE_TRANSPORT": "tcp", "HVDTUNE_HEARTBEAT_TIMEOUT_S": "3"}),
        ("--num-nccl-streams 4 --disable-cache", {}),
    ],
)  # fmt: skip
def test_options_become_variables_of_the_ranks(arguments, variables):
    assert rank_variables(parse(*arguments.split())) == variables


@pytest.mark.parametrize(
    ("arguments", "environ", "level"),
    [
        ("--verbose", {}, "info"),
        ("--verbose --log-level error", {}, "error"),
        ("--verbose", {"HOROVOD_LOG_LEVEL": "error"}, None),
        ("-np 1", {}, None),
    ],
)
def test_ranks_tell_more_where_that_is_asked_for(monkeypatch, arguments, environ, level):
    monkeypatch.setattr("hvdtune.cli.request.own_environ", lambda: environ)
    told = rank_variables(parse(*arguments.split()))
    assert told.get("HVDTUNE_LOG_LEVEL") == level


def test_options_become_knobs():
    options = parse("--hierarchical-allgather", "--no-torus-allreduce", "--fusion-threshold-mb=1")
    assert setting_of(options.knobs).core_setting() == {
        "fusion_threshold_bytes": 1 << 20,
        "hierarchical_allgather": True,
        "torus_allreduce": False,
    }


@pytest.mark.parametrize(("arguments", "seconds"), [("", 11.0), ("--start-timeout 7", 7.0)])
def test_the_option_for_the_start_comes_before_the_variable(monkeypatch, arguments, seconds):
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "11")
    assert options_of(Host("localhost", 1), *arguments.split()).start_timeout_s == seconds


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        pytest.param("", Path("environment.json"), id="variable"),
        pytest.param("--timeline-filename o.json", Path("o.json"), id="option-first"),
        pytest.param("--mpi", None, id="left-to-the-ranks-under-mpi"),
    ],
)
def test_who_names_the_timeline(monkeypatch, arguments, file):
    monkeypatch.setenv("HOROVOD_TIMELINE", "environment.json")
    assert parse(*arguments.split()).timeline.timeline_filename == file


@pytest.mark.parametrize(
    ("arguments", "horovod"),
    [("", True), ("--timeline-filename o.json", False), ("--timeline-format chrome", False)],
)
def test_horovods_variable_asks_for_horovods_format(monkeypatch, arguments, horovod):
    monkeypatch.setenv("HOROVOD_TIMELINE", "environment.json")
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    options = parse(*arguments.split())
    request = output_of(options.output, options.timeline).trace
    assert (request.horovod, request.mark_cycles) == (horovod, True)


def test_the_launcher_refuses_too_few_cores_before_a_rank_starts():
    host = Host("localhost", 2)
    with pytest.raises(UsageError, match="lists 1 core, but a host has 2 ranks"):
        options_of(host, "--thread-affinity", str(min(os.sched_getaffinity(0))))


def test_the_launcher_refuses_cores_that_its_host_does_not_have():
    cores = f"{min(os.sched_getaffinity(0))},9999"
    with pytest.raises(UsageError, match=f"^--thread-affinity {cores}: core 9999 is not available"):
        options_of(Host("::1", 2), "--thread-affinity", cores)


@pytest.mark.parametrize("variable", ["HVDTUNE_THREAD_AFFINITY", "HOROVOD_THREAD_AFFINITY"])
def test_the_launcher_refuses_cores_of_a_variable_that_its_host_does_not_have(
    monkeypatch, variable
):
    cores = f"{min(os.sched_getaffinity(0))},9999"
    monkeypatch.setenv(variable, cores)
    with pytest.raises(UsageError, match=f"^{variable}={cores}: core 9999 is not available"):
        options_of(Host("::1", 2))


@pytest.mark.parametrize("text", ["foo", "0,", "-1"])
def test_what_lists_no_cores_is_refused_by_the_options_name(text):
    with pytest.raises(click.BadParameter, match=f"'{text}' does not list cores, as 0,2 does"):
        parse("--thread-affinity", text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--num-nccl-streams 2", ["--num-nccl-streams has no effect: all of a rank"]),
        ("--tcp", ["--tcp has no effect without --mpi"]),
        ("--tcp --mpi", []),
        ("--autotune-log-file a.csv", ["--autotune-log-file has no effect without --autotune"]),
        ("--autotune --autotune-log-file a.csv", []),
        ("--autotune --autotune-warmup-samples 3", ["--autotune-warmup-samples has no effect"]),
        ("--autotune-warmup-samples 3", []),
        ("--network-interfaces lo,eth1", ["only the first network interface is used: lo"]),
        ("--disable-cache -p 22 --log-with-timestamp --timeline-mark-cycles", []),
    ],
)
def test_where_silence_would_mislead_one_line_is_said(arguments, said):
    lines = list(notices(parse(*arguments.split())))
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert line.startswith(part)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("--gloo --mpi", "give --gloo or --mpi"),
        ("--autotune --trials 3", "not both"),
        ("--time-budget 8m", "--time-budget needs"),
        ("--trials 3 --timeline-steps 1:2", "--timeline-steps cannot be combined with tuning"),
        ("--autotune --timeline-when-full stop", "stop cannot be combined with tuning"),
        ("--knobs channels", "--knobs needs"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments, fault):
    with pytest.raises(UsageError, match=fault):
        check(parse(*arguments.split()))


@pytest.mark.parametrize(
    "arguments",
    ["--log-level loud", "--autotune-gaussian-process-noise 2", "--num-nccl-streams many",
     "--blacklist-cooldown-range 1", "--no-such-option"],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(arguments):
    with pytest.raises((click.ClickException, UsageError)):
        parse(*arguments.split())


@pytest.mark.parametrize(
    ("arguments", "configured", "by_mpi"),
    [
        ("", "auto", False),
        ("", "mpi", True),
        ("--gloo", "mpi", False),
        ("--mpi", "hvdtune", True),
    ],
)
def test_who_starts_the_ranks(monkeypatch, arguments, configured, by_mpi):
    monkeypatch.setenv("HVDTUNE_CONTROLLER", configured)
    assert parse(*arguments.split()).mpi.mpi == by_mpi


@pytest.mark.parametrize("option", ["-v", "-p", "-i", "--log-level", "--version", "--autotune"])
def test_behind_the_script_horovodruns_further_options_are_the_scripts(option):
    arguments = ["run", "train.py", option, "3", "-np", "2"]
    options = app.parse(arguments)
    assert options.command == ["train.py", option, "3"]
    assert options.placement.num_proc == 2


_HOROVODRUN = "import sys; from hvdtune.cli.app import horovodrun; horovodrun()"


def call_horovodrun(folder, *words, path=""):
    paths = os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", _HOROVODRUN, *words],
        cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip


def test_horovodrun_is_hvdtune_run_with_abbreviated_options(tmp_path):
    words = ("--slots", "2", "-H", "localhost", "-np", "2", "sh", "-c", "echo $HOROVOD_SIZE")
    done = call_horovodrun(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:2", "[1]<stdout>:2"]


def test_horovodrun_is_horovods_where_horovod_is_installed(tmp_path):
    package = tmp_path / "horovod" / "runner"
    package.mkdir(parents=True)
    (package / "launch.py").write_text("def run_commandline():\n    print('Horovod'); return 3\n")
    facts = tmp_path / "horovod-0.28.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    entry = "[console_scripts]\nhorovodrun = horovod.runner.launch:run_commandline\n"
    (facts / "entry_points.txt").write_text(entry)
    done = call_horovodrun(tmp_path, "-np", "2", path=tmp_path)
    assert (done.returncode, done.stdout) == (3, "Horovod\n"), done.stderr
