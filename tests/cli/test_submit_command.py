import sys
from pathlib import Path

import pytest


@pytest.fixture
def submit(call, tmp_path):
    """Runs `hvdtune submit --dry-run ...` beside a train.py."""
    (tmp_path / "train.py").write_text("")
    return lambda *words: call("submit", "--dry-run", *words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--slurm train.py", "#SBATCH --ntasks-per-node=1"),
        ("--slurm -N 2 --gpus-per-node 4 train.py", "#SBATCH --ntasks-per-node=4"),
        ("--slurm --gpus-per-node 4 --ranks-per-node 2 train.py", "#SBATCH --ntasks-per-node=2"),
        ("--slurm --directive=--exclusive train.py", "#SBATCH --exclusive"),
        ("--slurm --partition gpu train.py", "#SBATCH --partition=gpu"),
        ("--pbs --queue gpu train.py", "#PBS -q gpu"),
        ("--lsf --time 90m train.py", "#BSUB -W 1:30"),
        ("--slurm --time 36:30:00 train.py", "#SBATCH --time=36:30:00"),
        ("--slurm --time 60m train.py", "#SBATCH --time=01:00:00"),
        ("--pbs --time 60s train.py", "#PBS -l walltime=00:01:00"),
        ("--slurm --venv ~/v train.py", f"source {Path.home()}/v/bin/activate"),
        ("--slurm --nodes 2 --directive=--nodes=2 train.py", "#SBATCH --nodes=2"),
        ("--slurm --directive=--time=10 train.py", "#SBATCH --time=10"),
        ("--lsf --directive=-R --directive=-x train.py", "#BSUB -x"),
        (
            f"--slurm --workbench-python {sys.executable} train.py",
            "# `hvdtune run` starts the one rank",
        ),
        ("--slurm --venv v train.py", "source {folder}/v/bin/activate"),
        (
            "--slurm --setup true train.py --trials 3 -N 5",
            "exec srun --ntasks=1 --ntasks-per-node=1 python train.py --trials 3 -N 5",
        ),
        (
            "--slurm --setup true --trials 40 --seed=7 -- train.py --trials 3",
            'exec hvdtune run -H "$hosts" --trials 40 --seed=7 -- train.py --trials 3',
        ),
        (
            "--slurm --setup true --per-node --ranks-per-node 2 --trials 40 train.py",
            "exec srun --ntasks=1 --ntasks-per-node=1 --cpus-per-task=2 hvdtune run -np 2 "
            "--trials 40 -- train.py",
        ),
        (
            "--lsf --setup true --no-hierarchical-allreduce python train.py",
            'exec hvdtune run -H "$hosts" --no-hierarchical-allreduce -- python train.py',
        ),
    ],
)
def test_options_become_lines(submit, tmp_path, words, line):
    code, out, err = submit(*words.split())
    assert (code, err) == (0, "")
    assert line.format(folder=tmp_path) in out.splitlines()
    assert f"cd {tmp_path}" in out.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.py", "choose the scheduler with --slurm, --pbs or --lsf"),
        ("--slurm --pbs train.py", "choose the scheduler with --slurm, --pbs or --lsf"),
        ("--slurm", "Missing argument 'SCRIPT'"),
        ("--slurm absent.py", "there is no script absent.py"),
        ("--slurm --nodes 0 train.py", "'--nodes' / '-N': it must be at least 1, not 0"),
        (
            "--slurm --time soon train.py",
            "'soon' is not a time such as 90s, 90m, 1h30m or 36:30:00",
        ),
        ("--slurm --time 60 train.py", "'60' has no unit: write 60m for minutes, the unit of"),
        ("--pbs --time 2:00 train.py", "'2:00' is not of the form HOURS:MINUTES:SECONDS"),
        ("--slurm --directive= train.py", "--directive: it is empty"),
        ("--slurm --directive=--nodes=4 train.py", "the script already contains --nodes=1"),
        ("--slurm --directive=exclusive train.py", "exclusive: options of sbatch must begin"),
        ("--slurm --account= train.py", "'--account': it is empty"),
        ("--slurm --partition= train.py", "'--partition' / '--queue': it is empty"),
        ("--slurm --setup= train.py", "'--setup': it is empty"),
        ("--slurm --time 1h99m train.py", "'1h99m' is not a time such as 90s, 90m, 1h30m"),
        ("--slurm --partition a;b train.py", "--partition 'a;b': only letters"),
        ("--pbs --queue a;b train.py", "--queue 'a;b': only letters"),
        ("--slurm --venv= train.py", "'--venv': it is empty"),
        ("--slurm --workbench-python= train.py", "'--workbench-python': it is empty"),
        (
            "--slurm --workbench-python /proc/absent train.py",
            "--workbench-python /proc/absent: no such program",
        ),
        (
            "--slurm --setup true --workbench-python ~/nonexistent train.py",
            f"--workbench-python {Path.home()}/nonexistent: no such program",
        ),
        ("--slurm --nope train.py", "No such option"),
        ("--slurm -np 4 train.py", "-np: the scheduler places the ranks; give --nodes"),
        ("--slurm --slots-per-host 2 train.py", "--slots-per-host: the scheduler places"),
        ("--slurm -H a:2 train.py", "-H: the scheduler places the ranks"),
        ("--slurm --mpi train.py", "--mpi: write the batch script by hand"),
        ("--slurm --knobs a train.py", "--knobs needs --trials"),
        ("--slurm --trials 0 train.py", "'--trials': it must be at least 1"),
        ("--slurm --job-name a;b train.py", "--job-name 'a;b': only letters"),
        ("--slurm --time", "option --time needs a value"),
    ],
)
def test_a_mistake_is_one_sentence(submit, words, said):
    code, out, err = submit(*words.split())
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [("", True), ("--setup true", False), (f"--workbench-python {sys.executable}", False)],
    ids=["this-python", "one-that-is-set-up", "another-one"],
)
def test_a_job_that_would_lack_the_workbench_is_not_sent(submit, monkeypatch, words, is_refused):
    monkeypatch.setattr("hvdtune.workbench.missing", lambda: ["optuna"])
    code, out, err = submit("--slurm", *words.split(), "--trials", "3", "train.py")
    assert (code, out == "") == (1 if is_refused else 0, is_refused)
    needs = "measuring with `hvdtune run` needs the workbench, but optuna is missing"
    assert (needs in err) == is_refused


def test_a_script_is_sent_unless_it_is_only_to_be_shown(call, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\ncat > "{tmp_path}/sent"; echo job 12\n')
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    code, out, err = call("submit", "--slurm", "train.py")
    assert (code, out, err) == (0, "", "hvdtune: job 12\n")
    assert (tmp_path / "sent").read_text().startswith("#!/bin/bash\n#SBATCH --job-name=train\n")
