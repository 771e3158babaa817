"""Jobs that the same processes form one after another under `hvdtune run`."""

import pytest

REFORM = """
from hvdtune.core.rank.runtime import setting, shutdown
for cycle_time_ms in (0.0, 1.5, 3.0):
    os.environ["HVDTUNE_CYCLE_TIME_MS"] = str(cycle_time_ms)
    init()
    barrier()
    print(setting()["cycle_time_ms"])
    shutdown()
"""
SURVIVE = """
from hvdtune.core.rank.runtime import shutdown
from hvdtune.errors import RendezvousError
init(); me = rank(); shutdown()
me == 1 and sys.exit(0)
try:
    init()
except RendezvousError:
    print("alone")
"""
KEEP_A_FAILURE = """
import numpy as np
from hvdtune.core.rank.collectives import Reduction, allreduce_request
from hvdtune.core.rank.handles import start, synchronize
from hvdtune.core.rank.runtime import shutdown
from hvdtune.errors import MismatchError
init()
odd = np.ones(1 + rank(), np.float32)
request = allreduce_request("odd", [("float32", odd.shape)], Reduction())
at = [odd.ctypes.data]
try:
    synchronize(start(request, at, at, [odd, native()], lambda _: None))
except MismatchError as error:
    kept = error
held = native()
shutdown(); init(); barrier()
print("again", rank())
"""
LEAVE_A_CHILD = """
from hvdtune.core.rank.runtime import shutdown
init()
end, held = os.pipe()
if os.fork() == 0:
    os.close(held)
    os.read(end, 1)
    os._exit(0)
shutdown(); init(); barrier()
print("again", rank())
"""


@pytest.mark.parametrize(
    ("ranks", "body", "said"),
    [
        (3, REFORM, [f"[{rank}]<stdout>:{ms}" for rank in range(3) for ms in (0.0, 1.5, 3.0)]),
        (2, SURVIVE, ["[0]<stdout>:alone"]),
        (2, KEEP_A_FAILURE, ["[0]<stdout>:again 0", "[1]<stdout>:again 1"]),
        (2, LEAVE_A_CHILD, ["[0]<stdout>:again 0", "[1]<stdout>:again 1"]),
    ],
    ids=[
        "has-the-settings-of-then",
        "may-fail-to-form",
        "does-not-mind-a-kept-failure",
        "does-not-mind-a-forked-child",
    ],
)
def test_a_job_after_a_shutdown(hvdtune, script, ranks, body, said):
    script(body)
    run = hvdtune("run", "train.py", "-np", str(ranks), "--start-timeout", "600")
    out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == said


def test_a_rank_that_does_not_come_back_is_named_at_once(hvdtune, script):
    script(
        "from hvdtune.core.rank.runtime import shutdown\n"
        "init(); me = rank(); shutdown()\n"
        "me == 1 and sys.exit(0)\n"
        "init()"
    )
    run = hvdtune("run", "train.py", "-np", "2", "--start-timeout", "600")
    _, err = run.communicate()
    assert run.returncode == 1
    assert "rank 1 exited with code 0 before all ranks had called hvd.init()" in err


def test_every_job_has_a_trace_of_its_own(hvdtune, script, tmp_path):
    script(
        "from hvdtune.core.rank.runtime import shutdown\n"
        "for count in (2, 5):\n"
        "    init()\n"
        "    for _ in range(count): barrier()\n"
        "    shutdown()"
    )
    run = hvdtune("run", "train.py", "-np", "2", "--timeline-filename", "trace.json")
    _, err = run.communicate()
    assert err.splitlines() == [
        f"hvdtune: trace: {name}" for name in ("trace.json", "trace-job1.json")
    ]
    counts = [
        (tmp_path / name).read_text().count('"BARRIER"')
        for name in ("trace.json", "trace-job1.json")
    ]
    assert counts[1] > counts[0] > 0
