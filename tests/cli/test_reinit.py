"""Jobs that the same processes form one after another under `hvdtune run`."""

import json

REFORM = """
import json
from hvdtune.core.rank.runtime import setting, shutdown
for cycle_time_ms in (0.0, 1.5, 3.0):
    os.environ["HVDTUNE_CYCLE_TIME_MS"] = str(cycle_time_ms)
    init()
    barrier()
    print(json.dumps(setting()["cycle_time_ms"]))
    shutdown()
"""


def test_each_init_after_a_shutdown_forms_a_job_with_the_settings_of_then(hvdtune, script):
    script(REFORM)
    run = hvdtune("run", "train.py", "-np", "3")
    out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    values = [json.loads(line.partition(">:")[2]) for line in out.splitlines()]
    assert sorted(values) == [0.0] * 3 + [1.5] * 3 + [3.0] * 3


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


def test_a_script_may_survive_that_the_job_is_not_formed_again(hvdtune, script):
    script(
        "from hvdtune.core.rank.runtime import shutdown\n"
        "from hvdtune.errors import RendezvousError\n"
        "init(); me = rank(); shutdown()\n"
        "me == 1 and sys.exit(0)\n"
        "try:\n"
        "    init()\n"
        "except RendezvousError:\n"
        "    print('alone')"
    )
    run = hvdtune("run", "train.py", "-np", "2", "--start-timeout", "600")
    out, _ = run.communicate()
    assert (run.returncode, out) == (0, "[0]<stdout>:alone\n")


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


def test_what_still_refers_to_a_failure_does_not_keep_the_ranks_from_a_new_job(hvdtune, script):
    script(
        "import numpy as np\n"
        "from hvdtune.core.rank.collectives import Reduction, allreduce_request\n"
        "from hvdtune.core.rank.handles import start, synchronize\n"
        "from hvdtune.core.rank.runtime import shutdown\n"
        "from hvdtune.errors import MismatchError\n"
        "init()\n"
        "odd = np.ones(1 + rank(), np.float32)\n"
        "request = allreduce_request('odd', [('float32', odd.shape)], Reduction())\n"
        "at = [odd.ctypes.data]\n"
        "try:\n"
        "    synchronize(start(request, at, at, [odd, native()], lambda _: None))\n"
        "except MismatchError as error:\n"
        "    kept = error\n"
        "held = native()\n"
        "shutdown(); init(); barrier()\n"
        "print('again', rank())"
    )
    run = hvdtune("run", "train.py", "-np", "2")
    out, err = run.communicate()
    assert (run.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0]<stdout>:again 0", "[1]<stdout>:again 1"]
