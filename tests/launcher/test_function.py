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
from hvdtune.core.elastic.loop import run as run_elastic
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.objects import allgather_object, broadcast_object
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


def held_by(lock):
    return lambda: lock


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
        (threading.Lock().acquire, "the function or its arguments cannot be pickled: func is a"),
        (held_by(threading.Lock()), r"lock \(used by func\) is a _thread.lock, which cannot be"),
        (3, "needs a function to call, not 3"),
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


def count_to(last, killed):
    """Counts on all ranks. Worker `killed` ends at 2 in the first generation."""
    runtime.init()
    state = ObjectState(broadcast_object, runtime.rank, count=0, sizes=[])

    @run_elastic
    def train(state):
        while state.count < last:
            is_killed = int(os.environ["HVDTUNE_WORKER"]) in killed and state.count == 2
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            state.sizes.append(len(allgather_object(None)))
            state.count += 1
            state.commit()
        return runtime.rank(), state.sizes

    return train(state)


@pytest.mark.parametrize(
    ("options", "killed", "sizes"),
    [
        ({"np": 3, "min_np": 2}, [1], [[3, 3, 2, 2]] * 2),
        ({"min_num_proc": 1, "hosts": "127.0.0.1:1,127.0.0.2:1"}, [0], [[2, 2, 1, 1]]),
        ({"min_num_proc": 2, "max_num_proc": 2, "cooldown_range": (1, 2)}, [1], [[2] * 4] * 2),
        ({"host_discovery_script": "echo localhost", "slots": 2, "min_np": 2}, [], [[2] * 4] * 2),
    ],
    ids=["by-number", "hosts", "replaced", "script"],
)
def test_the_function_of_an_elastic_job_goes_on_without_a_rank(options, killed, sizes):
    assert hvdtune.run(count_to, (4, killed), **options) == list(enumerate(sizes))


def test_an_elastic_job_of_a_function_that_raises_fails_with_its_error(tmp_path):
    def fail():
        runtime.init()
        barrier()
        raise KeyError("no such weight")

    with pytest.raises(FunctionError, match=r"worker [01]: KeyError: 'no such weight'"):
        hvdtune.run(fail, np=2, min_np=2, output_filename=tmp_path)
    assert 'raise KeyError("no such weight")' in (tmp_path / "worker.0" / "stderr").read_text()


@pytest.mark.parametrize(
    ("arguments", "kind", "fault"),
    [
        ({"num_proc": 0}, UsageError, "a job needs at least one process"),
        ({"np": 3, "hosts": "localhost:2"}, UsageError, "the hosts have only 2 slots"),
        ({"hosts": "a:1", "hostfile": "b"}, UsageError, "not both"),
        (
            {"hosts": "other.invalid:1"},
            LaunchError,
            "other.invalid: this host cannot resolve the name",
        ),
        ({"use_mpi": True, "min_np": 1}, UsageError, "leave out use_mpi="),
        ({"use_mpi": True, "output_filename": "log"}, UsageError, "output_filename= needs"),
        ({"mpi_args": "-x A"}, UsageError, "mpi_args= needs use_mpi=True"),
        ({"max_np": 2}, UsageError, "max_num_proc=2 needs min_num_proc="),
        ({"reset_limit": 2}, UsageError, "reset_limit=2 needs min_num_proc="),
        ({"min_np": 0}, UsageError, "min_num_proc=0 is less than 1"),
        ({"min_np": 3, "max_np": 2}, UsageError, "min_num_proc=3 is more than max_num_proc=2"),
        ({"min_np": 3, "hosts": "localhost:2"}, UsageError, "is more than the hosts' 2 slots"),
        ({"min_np": 1, "cooldown_range": (5, 1)}, UsageError, r"cooldown_range=\(5, 1\) must"),
        ({"hosts": "a:1", "host_discovery_script": "b"}, UsageError, "or hosts, not both"),
        ({"host_discovery_script": "false"}, LaunchError, "failed with exit code 1"),
        ({"start_timeout": 0}, UsageError, "start_timeout=0 is not a time"),
        ({"env": {"HOROVOD_TIMELINE": "t.json"}}, UsageError, r"call hvd\.start_timeline\(\) in"),
        ({"env": {"HOROVOD_AUTOTUNE": "1"}}, UsageError, "HOROVOD_AUTOTUNE is set, but the job"),
        ({"env": {"HOROVOD_CYCLE_TIME": "fast"}}, UsageError, "HOROVOD_CYCLE_TIME"),
        ({"env": {"OMP_NUM_THREADS": 1}}, UsageError, "env is .*, but must be a dict of strings"),
        ({"env": {"A": "a\0b"}}, UsageError, "env is .* no string may contain NUL"),
        ({"env": ["A=1"]}, UsageError, "env is"),
        ({"executable": "/proc/absent"}, LaunchError, "cannot start /proc/absent"),
        ({"output_filename": "/dev/null"}, UsageError, "output folder /dev/null: "),
        (
            {"network_interface": "none0,lo"},
            UsageError,
            "HVDTUNE_INTERFACE=none0 is not one of this host's interfaces",
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
