"""Batch scripts: their texts, what a shell does with them, and how they are sent."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hvdtune.errors import LaunchError, UsageError
from hvdtune.workflows.submit.batch_job import BatchJob, hours_minutes_seconds
from hvdtune.workflows.submit.script import SCHEDULERS, job_name, render, with_interpreter
from hvdtune.workflows.submit.send import send

GOLDEN = Path(__file__).parents[1] / "golden" / "submit"
SMALL = BatchJob(("train.py",), "/home/ada/net", "train")
LARGE = BatchJob(
    command=("train.py", "--lr", "0.1", "--note", "it's a $HOME"),
    folder="/home/ada/my net",
    name="resnet",
    nodes=4,
    ranks_per_node=8,
    gpus_per_node=8,
    cpus_per_rank=6,
    time_s=36.5 * 3600,
    queue="gpu",
    account="physics",
    output="logs/resnet.out",
    setup=("module purge", "module load cuda/12.4"),
    venv="/home/ada/my envs/train",
)
TUNED = BatchJob(
    command=("python", "-m", "train"),
    folder="/home/ada/net",
    name="train",
    python=("/usr/bin/python3",),
    hvdtune=("/opt/my tools/bin/hvdtune",),
    run_options=("--trials", "40", "--fix", "cache_capacity=0"),
    nodes=2,
    ranks_per_node=4,
    time_s=100.2,
)
PER_NODE = replace(LARGE, run_options=("--trials", "40"), per_node=True)
JOBS = {"small": SMALL, "large": LARGE, "tuned": TUNED}
CASES = [(name, job) for name in SCHEDULERS for job in JOBS]
JOBS["per-node"] = PER_NODE
CASES += [(name, "per-node") for name in SCHEDULERS]


@pytest.mark.parametrize(("name", "job"), CASES)
def test_a_batch_script_is_the_golden_one(name, job):
    golden = GOLDEN / f"{name}-{job}.sh"
    assert render(JOBS[job], SCHEDULERS[name]) == golden.read_text()


@pytest.mark.parametrize(("name", "job"), CASES)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["bash", "-n"], id="bash"),
        pytest.param(
            ["shellcheck", "--severity=warning"],  # it cannot know what is on the cluster
            id="shellcheck",
            marks=pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck"),
        ),
    ],
)
def test_a_shell_finds_no_fault_in_it(name, job, command):
    golden = GOLDEN / f"{name}-{job}.sh"
    done = subprocess.run([*command, golden], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


PROGRAM = """#!/bin/sh
for word; do printf '[%s]' "$word"; done
[ -z "$HVDTUNE_NODE" ] || printf ' on %s of %s' "$HVDTUNE_NODE" "$HVDTUNE_NODES"
printf '\\nkey %s in %s' "${#HVDTUNE_KEY}" "$PWD"
"""
# Starts one node at a time, here the second one too late to be seen, without the environment.
PBSDSH = """#!/bin/sh
test "$1 $3" = "-n --" || exit 9
[ "$2" = 0 ] || exit 0
shift 3; exec env -i HOME=/proc/absent PATH="$PATH" "$@"
"""
# The same by names.
BLAUNCH = """#!/bin/sh
test "$1" = -no-shell || exit 9
case "$2" in n1) ;; n2) exit 0 ;; *) exit 9 ;; esac
shift 2; exec env -i HOME=/proc/absent PATH="$PATH" "$@"
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Stand-ins for what a batch script starts; the function runs a script there."""
    (tmp_path / "my net").mkdir()
    for name, text in (
        ("srun", PROGRAM),
        ("hvdtune", PROGRAM),
        ("pbsdsh", PBSDSH),
        ("blaunch", BLAUNCH),
        (
            "scontrol",
            '#!/bin/sh\ntest "$1 $2 $3" = "show hostnames n[1-2]" && printf "n1\\nn2\\n"\n',
        ),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "PBS_NODEFILE": str(tmp_path / "nodes"),
        "LSB_DJOB_HOSTFILE": str(tmp_path / "nodes"),
    }

    def run(script):
        done = subprocess.run(
            ["bash"], input=script, env=environ, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


WORDS = "[--note][it's a $HOME]"


@pytest.mark.parametrize(
    ("name", "run_options", "per_node", "started", "key"),
    [
        ("slurm", (), False, f"[--ntasks=8][--ntasks-per-node=4][python][train.py]{WORDS}", 64),
        (
            "slurm",
            ("--trials", "9"),
            True,
            "[--ntasks=2][--ntasks-per-node=1][--cpus-per-task=4][hvdtune][run][-np][8][--trials]"
            f"[9][--][train.py]{WORDS}",
            64,
        ),
        (
            "slurm",
            ("--trials", "9"),
            False,
            f"[run][-H][n1:4,n2:4][--trials][9][--][train.py]{WORDS}",
            0,
        ),
        (
            "pbs",
            ("--trials", "9"),
            True,
            f"[run][-np][8][--trials][9][--][train.py]{WORDS} on 0 of 2",
            0,
        ),
        ("pbs", (), False, f"[run][-H][n1:4,n2:4][--][train.py]{WORDS}", 0),
        ("lsf", (), False, f"[run][-H][n1:4,n2:4][--][train.py]{WORDS}", 0),
        ("lsf", (), True, f"[run][-np][8][--][train.py]{WORDS} on 0 of 2", 0),
    ],
)
def test_a_shell_starts_the_ranks(cluster, tmp_path, name, run_options, per_node, started, key):
    job = BatchJob(
        command=("train.py", "--note", "it's a $HOME"),
        folder=str(tmp_path / "my net"),
        name="train",
        run_options=run_options,
        nodes=2,
        ranks_per_node=4,
        per_node=per_node,
        setup=(f"PATH={tmp_path}:$PATH",),  # which a login shell sets anew
    )
    code, out, err = cluster(render(job, SCHEDULERS[name]))
    assert (code, err) == (0, "")
    assert out == [started, f"key {key} in {tmp_path / 'my net'}"]


@pytest.mark.parametrize(
    ("setup", "folder"), [(("false",), "my net"), ((), "absent")], ids=["set-up", "folder"]
)
def test_a_script_whose_beginning_fails_starts_nothing(cluster, tmp_path, setup, folder):
    job = BatchJob(("train.py",), str(tmp_path / folder), "train", setup=setup)
    code, out, _ = cluster(render(job, SCHEDULERS["slurm"]))
    assert (code, out) == (1, [])


def test_every_job_has_a_key_of_its_own(cluster):
    job = BatchJob(("env",), "/", "env", nodes=2)
    script = render(job, SCHEDULERS["slurm"]).replace("exec srun", 'echo "$HVDTUNE_KEY"; exit; :')
    keys = {cluster(script)[1][0] for _ in range(3)}
    assert len(keys) == 3
    assert all(len(bytes.fromhex(key)) == 32 for key in keys)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "my job", "job_name 'my job': only letters, digits and _.,"),
        ("queue", "gpu\n#SBATCH --uid=0", "'gpu\\\\n#SBATCH --uid=0': only letters"),
        ("account", "a;b", "account 'a;b': only letters, digits and _.,"),
        ("output", "$(id)", "output '$(id)': only letters, digits and _.,"),
        ("directives", ("--x\nrm",), "directive --x\nrm: it must be one line"),
    ],
)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_values_that_would_be_read_as_something_else_are_refused(name, field, value, said):
    job = BatchJob(**{**vars(SMALL), field: value})
    with pytest.raises(UsageError) as refused:
        render(job, SCHEDULERS[name])
    assert said.replace("\\\\", "\\") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "directive", "already"),
    [
        ("slurm", "-N 4", "--nodes=1"),
        ("slurm", "--ntasks=9", "--ntasks-per-node=1"),
        ("slurm", "-o x", "--output=train-%j.out"),
        ("pbs", "-l select=2", "-l select=1:ncpus=1:mpiprocs=1"),
        ("pbs", "-l mem=4gb,nodes=2", "-l select=1:ncpus=1:mpiprocs=1"),
        ("pbs", "-N other", "-N train"),
        ("lsf", "-n 4", "-n 1"),
        ("lsf", '-R "span[hosts=1]"', '-R "span[ptile=1]"'),
    ],
)
def test_a_directive_that_contradicts_an_option_is_refused(name, directive, already):
    with pytest.raises(UsageError) as refused:
        render(replace(SMALL, directives=(directive,)), SCHEDULERS[name])
    assert str(refused.value) == f"directive {directive}: the script already contains {already}"


@pytest.mark.parametrize(
    ("name", "directives"),
    [
        ("slurm", ("--mem=4G", "--mem=8G")),
        ("pbs", ("-l mem=4gb", "-l mem=8gb")),
        ("lsf", ("-M 4", "-M 8")),
    ],
)
def test_two_directives_that_contradict_each_other_are_refused(name, directives):
    with pytest.raises(UsageError, match=f"the script already contains {directives[0]}"):
        render(replace(SMALL, directives=directives), SCHEDULERS[name])


@pytest.mark.parametrize(
    ("name", "directives", "without"),
    [
        ("slurm", ("--exclusive", "--exclusive", "--nodes=1"), ()),
        ("pbs", ("-l place=scatter:excl", "-j n", "-l walltime=1:00:00"), ("-j oe",)),
        ("lsf", ('-R "rusage[mem=1]"', '-R "rusage[ngpus=1]"'), ()),
    ],
)
def test_other_directives_are_lines_of_the_script(name, directives, without):
    scheduler = SCHEDULERS[name]
    lines = render(replace(SMALL, directives=directives), scheduler).splitlines()
    assert {f"{scheduler.prefix} {line}" for line in directives} <= {*lines}
    assert f"{scheduler.prefix} -l place=scatter" not in lines
    assert not {f"{scheduler.prefix} {line}" for line in without} & {*lines}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["train.py"], "train"),
        (["a b/my train.py"], "my-train"),
        (["/opt/bin/python", "-u", "x.py", "--then", "y.py"], "x"),
        (["/opt/bin/train", "x"], "train"),
        (["3d.py"], "job-3d"),
        (["...py"], "job"),
    ],
)
def test_a_job_has_the_name_of_its_script(command, name):
    assert job_name(command) == name


@pytest.mark.parametrize(
    ("seconds", "text"), [(90, "00:01:30"), (0.5, "00:00:01"), (129_600, "36:00:00")]
)
def test_time_limits(seconds, text):
    assert hours_minutes_seconds(seconds) == text


@pytest.mark.parametrize(
    ("change", "python"),
    [({}, "/opt/python"), ({"setup": ("module load x",)}, "python"), ({"venv": "/v"}, "python")],
)
def test_the_python_is_this_one_unless_another_is_set_up(change, python):
    job = with_interpreter(BatchJob(**{**vars(SMALL), **change}), "/opt/python", ["/opt/hvdtune"])
    assert f" {python} train.py\n" in render(job, SCHEDULERS["slurm"])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_reads_the_script_and_answers(tmp_path, monkeypatch, name):
    scheduler = SCHEDULERS[name]
    program = tmp_path / scheduler.submit
    program.write_text(f'#!/bin/sh\ntest $# = 0 && cat > "{tmp_path}/sent" && echo job 12\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert send("#!/bin/bash\n", scheduler) == "job 12"
    assert (tmp_path / "sent").read_text() == "#!/bin/bash\n"


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'error: Batch job\nsubmission failed' >&2; exit 1", "Batch job submission failed"),
        ("exit 3", "exit code 3"),
        (None, "No such file or directory; send the job from a host that has it"),
    ],
)
def test_a_job_that_is_not_taken_is_a_sentence(tmp_path, monkeypatch, name, body, said):
    scheduler = SCHEDULERS[name]
    if body is not None:
        (tmp_path / scheduler.submit).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / scheduler.submit).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + ("" if body is None else ":/bin"))
    with pytest.raises(LaunchError, match=said):
        send("#!/bin/bash\n", scheduler)
