import json
import signal
import time

import pytest

_PRINT_PLACES = """
from hvdtune.core.rank.runtime import cross_rank, local_rank
init(); print(rank(), local_rank(), cross_rank(), os.environ["HVDTUNE_HOST"])
"""
_PRINT_HOROVODS = """
init(); print(*(os.environ["HOROVOD_" + name] for name in
("RANK", "SIZE", "LOCAL_RANK", "CROSS_SIZE", "CONTROLLER", "CPU_OPERATIONS")))
"""


@pytest.mark.parametrize(
    ("words", "body", "lines"),
    [
        (
            "train.py --lr 0.1 -np 2 --cycle-time-ms 2",
            "init(); print(sys.argv[1:])",
            ["['--lr', '0.1']", "['--lr', '0.1']"],
        ),
        (
            "train.py --seed 42 --verbose -o model.pt --profile --help -np 1",
            "init(); print(sys.argv[1:])",
            ["['--seed', '42', '--verbose', '-o', 'model.pt', '--profile', '--help']"],
        ),
        ("train.py", _PRINT_HOROVODS, ["0 1 0 1 gloo gloo"]),
        (
            "-H 127.0.0.1:2,127.0.0.2:1 train.py",
            _PRINT_PLACES,
            ["0 0 0 127.0.0.1", "1 1 0 127.0.0.1", "2 0 1 127.0.0.2"],
        ),
    ],
    ids=["two-ranks", "options-of-the-script", "horovods-variables", "loopback-aliases-are-hosts"],
)
def test_the_output_of_each_rank_is_prefixed(hvdtune, script, words, body, lines):
    script(body)
    run = hvdtune("run", *words.split())
    out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == [
        f"[{rank}]<stdout>:{line}" for rank, line in enumerate(lines)
    ]


@pytest.mark.parametrize(
    ("words", "environ", "knobs"),
    [
        pytest.param(
            ("--fusion-threshold-mb", "0.5", "--fix", "chunk_bytes=65536", "--cycle-time-ms", "3"),
            {},
            {"fusion_threshold_bytes": 1 << 19, "chunk_bytes": 65536, "cycle_time_ms": 3.0},
            id="options",
        ),
        pytest.param(
            ("--config-file", "c.yaml"),
            {"HOROVOD_CYCLE_TIME": "4", "HOROVOD_FUSION_THRESHOLD": "1"},
            {"fusion_threshold_bytes": 2 << 20, "cycle_time_ms": 4.0},
            id="configuration-file-before-horovods-variables",
        ),
    ],
)
def test_knobs_reach_the_ranks(hvdtune, script, tmp_path, monkeypatch, words, environ, knobs):
    script("import json; init(); print(json.dumps(native().setting()))")
    (tmp_path / "c.yaml").write_text("params: {fusion_threshold_mb: 2}\n")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    out, err = hvdtune("run", *words, "train.py").communicate()
    assert err == ""
    assert json.loads(out.partition(">:")[2]).items() >= knobs.items()


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("--fix=cycle_time=3", "unknown knob cycle_time; the knobs are"),
        ("--fix=cycle_time_ms", "is not of the form knob=value"),
        ("--cycle-time-ms=99", "cycle_time_ms = 99 is out of range: 0 to 50 ms"),
    ],
)
def test_knobs_that_cannot_be_are_one_line(call, script, option, fault):
    script("init()")
    code, _, err = call("run", option, "train.py")
    assert code == 2
    assert err.startswith("hvdtune: error: ") and err.count("\n") == 1 and fault in err


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ("init(); sys.exit(5 if rank() == 1 else 0)", 5, "rank 1 exited with code 5"),
        ("init(); rank() == 1 and os.kill(os.getpid(), 9)", 137, "rank 1 was killed by SIGKILL"),
    ],
)
def test_a_failure_is_the_exit_code_and_one_line(hvdtune, script, body, code, reason):
    script(body)
    run = hvdtune("run", "-np", "2", "train.py")
    _, err = run.communicate()
    assert run.returncode == code
    assert err.splitlines()[-1] == f"hvdtune: error: {reason}"


@pytest.mark.slow
def test_a_rank_that_does_not_call_init_is_ended_when_the_others_have_given_up(hvdtune, script):
    script("os.environ['HVDTUNE_RANK'] == '0' and init(); time.sleep(600)")
    run = hvdtune("run", "--start-timeout", "1", "-np", "2", "train.py")
    _, err = run.communicate()
    assert run.returncode == 1
    assert err.splitlines()[-1].startswith(
        "hvdtune: error: start-up timed out: no message from rank 1"
    )


def test_a_command_that_is_no_training_succeeds_with_a_remark(hvdtune):
    run = hvdtune("run", "-np", "2", "echo", "data")
    out, err = run.communicate()
    assert (run.returncode, out.count("data")) == (0, 2)
    assert err == (
        "hvdtune: warning: echo ended without calling hvd.init(): "
        "its processes never formed a job\n"
    )


@pytest.mark.parametrize(
    ("number", "code", "name"), [(signal.SIGINT, 130, "SIGINT"), (signal.SIGTERM, 143, "SIGTERM")]
)
def test_a_stopped_job_ends_with_everything_it_started(hvdtune, script, number, code, name):
    script("init(); print('up'); time.sleep(600)")
    run = hvdtune("run", "-np", "2", "train.py")
    run.stdout.readline()
    run.send_signal(number)
    _, err = run.communicate()
    assert (run.returncode, err) == (code, f"hvdtune: error: stopped by {name}\n")


def test_a_trace_of_all_ranks_is_left(hvdtune, script, tmp_path):
    script("init()\nfor _ in range(5): step()")
    run = hvdtune("run", "-np", "2", "--timeline-filename", "trace.json", "train.py")
    _, err = run.communicate()
    assert run.returncode == 0, err
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "trace.json"}


def test_a_run_folder_keeps_output_and_trace(hvdtune, script, tmp_path):
    script("init(); step(); step(); print('kept')")
    for _ in range(2):
        run = hvdtune("run", "-o", "kept", "train.py")
        assert run.communicate()[0] == "[0]<stdout>:kept\n"
    left = {str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*.*")}
    assert left == {
        "run.json",
        "trace.json",
        "output/launch-0.log",
        "output/launch-1.log",
        "ranks/launch-0/rank-0.hvt",
        "ranks/launch-1/rank-0.hvt",
    }


def test_each_ranks_output_is_kept_in_a_folder_of_its_own(hvdtune, script, tmp_path):
    script("init(); print('out', rank()); print('err', rank(), file=sys.stderr)")
    run = hvdtune("run", "-np", "2", "--output-filename", "kept", "-prefix-timestamp", "train.py")
    out, _ = run.communicate()
    assert run.returncode == 0
    assert sorted(line.partition("[")[2] for line in out.splitlines()) == [
        "0]<stdout>:out 0",
        "1]<stdout>:out 1",
    ]
    for number in range(2):
        folder = tmp_path / "kept" / f"rank.{number}"
        assert (folder / "stdout").read_text() == f"out {number}\n"
        assert (folder / "stderr").read_text() == f"err {number}\n"


@pytest.mark.parametrize(
    "variable", ["HOROVOD_FUSION_THRESHOLD=64MB", "HOROVOD_AUTOTUNE=maybe", "HOROVOD_ELASTIC=1"]
)
def test_a_variable_that_cannot_be_is_refused_before_a_rank_starts(
    call, script, tmp_path, monkeypatch, variable
):
    script("open('started', 'w')")
    monkeypatch.setenv(*variable.split("="))
    code, out, err = call("run", "train.py")
    assert (code, out) == (2, "")
    assert not (tmp_path / "started").exists()
    assert err.startswith(f"hvdtune: error: {variable}") and err.count("\n") == 1


_INNER = """
from hvdtune.core.rank.runtime import setting, size
init(); print(size(), setting()["cycle_time_ms"], "HVDTUNE_TIMELINE" in os.environ)
"""
_OUTER = """
import subprocess
init()
inner = [sys.executable, "-m", "hvdtune", "run", "-np", "2", "inner.py"]
if rank() == 1:
    sys.exit(subprocess.run(inner).returncode)
"""


def test_a_job_inside_a_rank_knows_nothing_of_the_outer_one(hvdtune, script, tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_HOSTNAME", "a-container")
    script(_INNER)
    (tmp_path / "train.py").rename(tmp_path / "inner.py")
    script(_OUTER)
    options = ("--cycle-time-ms", "3", "--timeline-filename", "outer.json")
    run = hvdtune("run", "-np", "2", *options, "train.py")
    out, err = run.communicate()
    assert (run.returncode, err.splitlines()) == (0, ["hvdtune: trace: outer.json"])
    said = [f"[1]<stdout>:[{inner}]<stdout>:2 1.0 False" for inner in (0, 1)]
    assert sorted(out.splitlines()) == said


# Its ranks combine a gradient until somebody says stop.
_RECORDED = """
import hvdtune.recording
import numpy as np
from hvdtune.core.rank.collectives import Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.runtime import shutdown
{before}
init()
{after}
gradient = np.ones(1, np.float32)
going = np.ones(1, np.float32)
while going[0] > 0.9:
    synchronize(allreduce_async(ADAPTER, [gradient], [gradient], "gradient", Reduction()))
    going[0] = not os.path.exists("stop")
    synchronize(allreduce_async(ADAPTER, [going], [going], "going", Reduction()))
shutdown()
"""


@pytest.mark.parametrize(
    ("options", "before", "after", "is_horovods"),
    [
        ("--timeline-filename trace.json", "", "", False),
        ("", "", "hvdtune.recording.start_timeline('trace.json')", False),
        ("", "os.environ['HOROVOD_TIMELINE'] = 'trace.json'", "", True),
    ],
    ids=["option", "start-timeline", "variable-set-by-the-script"],
)
def test_a_timeline_is_read_while_the_job_runs_and_written_when_it_ends(
    hvdtune, call, script, tmp_path, options, before, after, is_horovods
):
    script(_RECORDED.format(before=before, after=after))
    job = hvdtune("run", "-np", "2", *options.split(), "train.py")
    sizes: list[int] = []
    while len(sizes) < 2 or min(sizes) < 5000:
        assert job.poll() is None
        time.sleep(0.01)
        sizes = [path.stat().st_size for path in tmp_path.glob(".trace.json.*/rank-*")]
    code, out, err = call("timeline", "stats", "trace.json")
    assert code == 0 and "ALLREDUCE" in out
    assert "trace.json is not written yet: ranks still record it" in err
    (tmp_path / "stop").touch()
    assert job.communicate()[1].splitlines() == ["hvdtune: trace: trace.json"] * bool(options)
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert isinstance(trace, list) == is_horovods
    assert "gradient" in json.dumps(trace)
    assert not list(tmp_path.glob(".trace.json*"))
