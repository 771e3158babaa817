"""A function on the ranks of a job: what comes back, and what fails."""

import contextlib
import inspect
import io
import os
import signal
import subprocess
import sys
import threading

import pytest

import hvdtune
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import barrier
from hvdtune.errors import FunctionError, LaunchError, UsageError


def place():
    runtime.init()
    barrier()
    return runtime.rank(), runtime.size()


def adding(offset):
    return lambda x, *, y: (x, y + offset)


ELSEWHERE = {
    "hosts": "127.0.0.1:1,127.0.0.2:1",
    "env": {"COLOUR": "red", "HVDTUNE_RANK": "9"},
}


def look():
    return [os.environ[name] for name in ("HOROVOD_HOSTNAME", "COLOUR", "HVDTUNE_RANK")]


@pytest.mark.parametrize(
    ("function", "options", "results"),
    [
        (place, {"num_proc": 3}, [(0, 3), (1, 3), (2, 3)]),
        (adding(7), {"args": ([1, 2],), "kwargs": {"y": 3}, "np": 2}, [([1, 2], 10)] * 2),
        (os.getppid, {"np": 2}, [os.getpid()] * 2),
        (look, {"np": 2} | ELSEWHERE, [["127.0.0.1", "red", "0"], ["127.0.0.2", "red", "1"]]),
        (place, {"np": 2, "network_interfaces": ["lo"]}, [(0, 2), (1, 2)]),
    ],
    ids=["by-rank", "arguments-and-what-a-lambda-holds", "no-job", "hosts-and-env", "interface"],
)
def test_the_results_come_back(function, options, results):
    assert hvdtune.run(function, **options) == results


def test_an_object_of_a_class_made_on_the_way_is_of_the_callers_class():
    class Point:
        def __init__(self, x):
            self.x = x

    (point,) = hvdtune.run(lambda: Point(3))
    assert type(point) is Point
    assert point.x == 3


def test_an_exception_names_the_rank_and_brings_its_traceback():
    def fail():
        if place()[0] == 1:
            raise KeyError("no such weight")
        barrier()

    with pytest.raises(FunctionError, match="rank 1: KeyError: 'no such weight'") as caught:
        hvdtune.run(fail, np=2)
    assert caught.value.rank == 1
    assert 'raise KeyError("no such weight")' in str(caught.value)
    assert "hvdtune/launcher/call.py" not in str(caught.value)
    assert repr(caught.value.__cause__) == "KeyError('no such weight')"


def test_an_exception_that_cannot_be_pickled_is_told_as_text():
    def fail():
        class Held(Exception):
            pass

        error = Held("holds a lock")
        error.lock = __import__("threading").Lock()
        raise error

    with pytest.raises(FunctionError, match=r"rank 0: .*Held: holds a lock") as caught:
        hvdtune.run(fail)
    assert caught.value.__cause__ is None


class Broken:
    def __reduce__(self):
        return int, ("not a number",)


def generate():
    return (x for x in range(3)) if os.environ["HVDTUNE_RANK"] == "1" else None


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (generate, "rank 1: its result, of type generator, cannot be"),
        (Broken, "rank 0: its result cannot be unpickled here"),
    ],
)
def test_a_result_that_cannot_be_pickled_or_unpickled_names_the_rank(function, fault):
    with pytest.raises(FunctionError, match=fault):
        hvdtune.run(function, np=2)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (threading.Lock().acquire, "the function or its arguments cannot be pickled"),
        (3, "calls a function, which 3 is not"),
    ],
)
def test_what_cannot_be_called_on_ranks_is_a_usage_error(function, fault):
    with pytest.raises(UsageError, match=fault):
        hvdtune.run(function)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1 was killed by SIGKILL"),
        (lambda: sys.exit(3), "rank 1 exited with code 3"),
        (lambda: sys.exit(0), "rank 1 ended before fail returned"),
    ],
)
def test_a_rank_that_ends_without_returning_is_named(body, reason):
    def fail():
        if place()[0] == 1:
            body()

    with pytest.raises(FunctionError, match=reason) as caught:
        hvdtune.run(fail, np=2)
    assert caught.value.rank == 1


def test_ctrl_c_ends_all_ranks(tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text(
        "import hvdtune\n"
        "def wait():\n"
        "    import os, time\n"
        "    print('pid', os.getpid())\n"
        "    time.sleep(600)\n"
        "hvdtune.run(wait, np=2)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    pids = [int(caller.stdout.readline().split()[-1]) for _ in range(2)]
    caller.send_signal(signal.SIGINT)
    caller.communicate()
    assert caller.returncode == -signal.SIGINT
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_output_appears_with_its_rank_and_is_kept_in_files(tmp_path, capsys):
    def talk():
        print("out of", os.environ["HVDTUNE_RANK"])
        print("err", file=sys.stderr)

    hvdtune.run(talk, np=2, output_filename=tmp_path / "log", verbose=1)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[0]<stdout>:out of 0", "[1]<stdout>:out of 1"]
    assert "hvdtune: rank 1 on localhost: pid " in shown.err
    assert (tmp_path / "log" / "rank.1" / "stdout").read_text() == "out of 1\n"
    assert (tmp_path / "log" / "rank.0" / "stderr").read_text() == "err\n"


@pytest.mark.parametrize("here", [io.StringIO(), io.TextIOWrapper(io.BytesIO(), "ascii")])
def test_output_appears_wherever_print_writes_in_any_alphabet(here):
    with contextlib.redirect_stdout(here):
        hvdtune.run(lambda: print("\N{GREEK SMALL LETTER MU}s"))
    here.seek(0)
    shown = here.read() if isinstance(here, io.StringIO) else here.buffer.read().decode()
    assert shown == "[0]<stdout>:\N{GREEK SMALL LETTER MU}s\n"


def test_a_closed_stdout_holds_nobody_up():
    here = io.StringIO()
    here.close()
    with contextlib.redirect_stdout(here):
        assert hvdtune.run(lambda: print("x" * 200_000)) == [None]


@pytest.mark.parametrize(
    "name",
    ["min_num_proc", "max_num_proc", "slots", "reset_limit", "host_discovery_script", "min_np"],
)
def test_elastic_jobs_are_refused_by_name_and_version(name):
    with pytest.raises(NotImplementedError, match=rf"{name}=.*hvdtune {hvdtune.__version__}"):
        hvdtune.run(place, **{name: 1})


@pytest.mark.parametrize(
    ("arguments", "kind", "fault"),
    [
        ({"num_proc": 0}, UsageError, "a job needs at least one process"),
        ({"np": 3, "hosts": "localhost:2"}, UsageError, "the hosts have only 2 slots"),
        ({"hosts": "a:1", "hostfile": "b"}, UsageError, "not both"),
        ({"hosts": "elsewhere:1"}, LaunchError, "elsewhere: this host cannot resolve the name"),
        ({"use_mpi": True}, UsageError, r"use_mpi=...\) does not start mpirun"),
        ({"mpi_args": "-x A"}, UsageError, r"mpi_args=...\) does not start mpirun"),
        ({"start_timeout": 0}, UsageError, "start_timeout=0 is not a time"),
        ({"env": {"HOROVOD_TIMELINE": "t.json"}}, UsageError, r"call hvd\.start_timeline\(\) in"),
        ({"env": {"HOROVOD_AUTOTUNE": "1"}}, UsageError, "HOROVOD_AUTOTUNE is set, but the job"),
        ({"env": {"HOROVOD_CYCLE_TIME": "fast"}}, UsageError, "HOROVOD_CYCLE_TIME"),
        ({"env": {"OMP_NUM_THREADS": 1}}, UsageError, "env is .*, but must be a dict of strings"),
        ({"env": {"A": "a\0b"}}, UsageError, "env is .* no string holds NUL"),
        ({"env": ["A=1"]}, UsageError, "env is"),
        ({"executable": "/no/python"}, LaunchError, "cannot start /no/python"),
        ({"output_filename": "/dev/null"}, UsageError, "output folder /dev/null: "),
        (
            {"network_interface": "none0,lo"},
            UsageError,
            "HVDTUNE_INTERFACE=none0 is none of this host's",
        ),
    ],
)
def test_arguments_that_cannot_be_are_named(arguments, kind, fault):
    with pytest.raises(kind, match=fault):
        hvdtune.run(place, **arguments)


def test_the_arguments_are_horovods_and_ours_come_by_name_only():
    parameters = inspect.signature(hvdtune.run).parameters
    *theirs, ours = parameters
    assert " ".join(theirs) == (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range "
        "hosts hostfile host_discovery_script start_timeout ssh_port ssh_identity_file "
        "disable_cache output_filename verbose use_gloo use_mpi mpi_args network_interface "
        "network_interfaces executable np min_np max_np"
    )
    given = {name: parameters[name].default for name in theirs[1:]}
    assert given.pop("args") == () and given.pop("num_proc") == 1
    assert set(given.values()) == {None}
    assert parameters[ours].kind is inspect.Parameter.KEYWORD_ONLY
