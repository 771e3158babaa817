from pathlib import Path

import click
import pytest

from hvdtune.cli import app
from hvdtune.cli.config_file import KEYS
from hvdtune.cli.parameters import values_of
from hvdtune.errors import UsageError

_COMPLETE = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  cache_capacity: 512
  hierarchical_allreduce: true
  hierarchical_allgather: false
  torus_allreduce: yes
autotune:
  enabled: true
  log_file: autotune.csv
  warmup_samples: 5
  steps_per_sample: 20
  bayes_opt_max_samples: 50
  gaussian_process_noise: 0.9
timeline:
  filename: timeline.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 120
  shutdown_time_seconds: 240
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 1
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: true
"""


@pytest.fixture
def parse(tmp_path):
    def run(text, *arguments):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        words = ["run", "--config-file", str(file), *arguments, "train.py"]
        return app.parse(words)

    return run


_VALUES = {
    "controller": "gloo",
    "fusion_threshold_mb": 32.0,
    "cycle_time_ms": 2.5,
    "cache_capacity": 512,
    "hierarchical_allreduce": True,
    "hierarchical_allgather": False,
    "torus_allreduce": True,
    "autotune": True,
    "autotune_log_file": Path("autotune.csv"),
    "autotune_warmup_samples": 5,
    "autotune_steps_per_sample": 20,
    "autotune_bayes_opt_max_samples": 50,
    "autotune_gaussian_process_noise": 0.9,
    "timeline_filename": Path("timeline.json"),
    "timeline_mark_cycles": True,
    "stall_check": False,
    "stall_check_warning_time_seconds": 120.0,
    "stall_check_shutdown_time_seconds": 240.0,
    "mpi_threads_disable": True,
    "num_nccl_streams": 2,
    "thread_affinity": "1",
    "gloo_timeout_seconds": 60.0,
    "log_level": "info",
    "log_timestamp": True,
}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param((), {}, id="file-alone"),
        pytest.param(
            ("--cycle-time-ms=7", "--no-torus-allreduce", "--stall-check"),
            {"cycle_time_ms": 7.0, "torus_allreduce": False, "stall_check": True},
            id="command-line-first",
        ),
    ],
)
def test_each_of_horovods_keys_sets_its_option_unless_the_command_line_does(
    parse, arguments, named
):
    options = values_of(parse(_COMPLETE, *arguments))
    assert len(KEYS) == len(_VALUES)
    assert {name: options[name] for name in KEYS.values()} == _VALUES | named


@pytest.mark.parametrize(
    ("arguments", "by_mpi"), [((), True), (("--gloo",), False), (("--mpi",), True)]
)
def test_a_flag_comes_before_the_files_controller(monkeypatch, parse, arguments, by_mpi):
    monkeypatch.setenv("HVDTUNE_CONTROLLER", "hvdtune")
    assert parse("controller: mpi\n", *arguments).mpi.mpi == by_mpi


def test_a_file_may_begin_with_a_byte_order_mark(parse):
    assert parse("\ufeffparams:\n  cycle_time_ms: 3\n").knobs.cycle_time_ms == 3


@pytest.mark.parametrize("text", ["", "# nothing\n", "params:\n", "params: {cycle_time_ms: }\n"])
def test_a_file_may_leave_out_everything(parse, text):
    assert parse(text).knobs.cycle_time_ms is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("params:\n  cycle_time: 3\n", ":2: unknown key params.cycle_time"),
        ("verbose: true\n", ":1: unknown key verbose"),
        (
            "params:\n  cache_capacity: 1\n  cycle_time_ms: fast\n",
            ":3: params.cycle_time_ms: 'fast' is",
        ),
        ("params:\n  cycle_time_ms: [1]\n", ":2: params.cycle_time_ms must be a single value"),
        ("stall_check:\n  enabled: perhaps\n", ":2: stall_check.enabled: "),
        ("autotune:\n  gaussian_process_noise: 3\n", ":2: autotune.gaussian_process_noise: "),
        ("controller: jsrun\n", ":1: controller: "),
        ("timeline: trace.json\n", ":1: timeline must be a mapping"),
        ("- a\n", ":1: the file must be a mapping"),
        (
            "params:\n  cycle_time_ms: 1\n  cycle_time_ms: 2\n",
            ":3: params.cycle_time_ms is specified",
        ),
        ("params: {\n", "config.yaml: the file is not YAML: "),
        ("\x00", "config.yaml: the file is not YAML: "),
    ],
)
def test_a_fault_is_named_with_file_line_and_key(parse, text, fault):
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"^--config-file .*/x: No such file or directory"):
        app.parse(["run", "--config-file", str(tmp_path / "x"), "t.py"])


def test_a_fault_of_the_command_line_is_not_the_files(parse):
    with pytest.raises(click.ClickException) as raised:
        parse("params: {cycle_time_ms: 3}\n", "--cycle-time-ms=quick")
    assert raised.value.format_message().startswith("Invalid value for '--cycle-time-ms'")
