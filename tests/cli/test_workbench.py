"""What a training environment does without the workbench, and with that of another one."""

import json
import subprocess
import sys
import venv

import pytest
import yaml

import hvdtune as package
from hvdtune import workbench
from hvdtune.cli import handover
from hvdtune.core.job.child_command import Interpreter, of_ranks
from tests.kit import programs
from tests.kit.scripts import MEET, REDUCE

# What brought `hvdtune run` along once, and what only the workbench has.
ABSENT = (*workbench.PACKAGES, "sqlalchemy", "alembic", "typer", "pydantic", "packaging")
_HIDE = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, *rest):
    return None if name.partition(".")[0] in {ABSENT!r} else find(name, *rest)
PathFinder.find_spec = staticmethod(find_spec)
"""
_TORCH = """
import sys, torch, hvdtune.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(3), op=hvd.Sum).sum().item()
print(total, {absent} & {{name.partition(".")[0] for name in sys.modules}})
"""


@pytest.fixture
def bare(tmp_path):
    """Runs `hvdtune ...` in an empty folder where no package of the workbench can be imported."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent/sitecustomize.py").write_text(_HIDE)
    (tmp_path / "work").mkdir()
    path = f"{tmp_path / 'absent'}:{programs.environ()['PYTHONPATH']}"

    def run(*words, program=None, codes=(0,), **variables):
        command = programs.hvdtune(*words) if program is None else [sys.executable, program]
        done = subprocess.run(
            command,
            cwd=tmp_path / "work",
            env=programs.environ(PYTHONPATH=path, **variables),
            capture_output=True,
            text=True,
        )
        assert done.returncode in codes, done.stderr
        return done

    run.folder = tmp_path / "work"
    return run


@pytest.mark.parametrize(
    ("script", "line"),
    [(MEET.format(steps=2), "[0]<stdout>:ranks: 2"),
     (_TORCH.format(absent=set(ABSENT)), "[1]<stdout>:6.0 set()")],
    ids=["numpy", "torch"],
)  # fmt: skip
def test_ranks_run_without_the_workbench(bare, script, line):
    (bare.folder / "train.py").write_text(script)
    done = bare("run", "-np", "2", "train.py")
    assert (line in done.stdout.splitlines(), done.stderr) == (True, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--version", f"hvdtune {package.__version__}"),
        ("--help", "Usage: hvdtune [OPTIONS] COMMAND"),
        ("doctor", "-       workbench       no pandas, pyarrow, optuna"),
        ("build mpi --check", ""),
        ("profile export tuned.yaml --to env", "HVDTUNE_CYCLE_TIME_MS=2"),
    ],
)
def test_commands_of_the_runtime_need_nothing_else(bare, words, said):
    (bare.folder / "tuned.yaml").write_text(yaml.safe_dump(_PROFILE))
    done = bare(*words.split(), codes=(0, 1) if words.startswith("build") else (0,))
    assert said in done.stdout
    assert "Traceback" not in done.stderr


_PROFILE = {
    "version": 1,
    "setting": {"cycle_time_ms": 2.0},
    "default": {"cycle_time_ms": 1.0},
    "verdict": {
        "improved": True,
        "gain_percent": 3.0,
        "ci_percent": [2.0, 4.0],
        "pairs": 20,
        "launches": 3,
        "noise_floor_percent": 1.0,
        "text": "faster",
    },
    "fingerprint": {"world": 2, "tensors": {"count": 3, "bytes": 12, "octaves": {2: 3}}},
    "created": "2026-11-24T00:00:00+00:00",
}


def test_a_tuned_setting_is_used_and_compared_without_the_workbench(bare):
    (bare.folder / "tuned.yaml").write_text(yaml.safe_dump(_PROFILE))
    (bare.folder / "train.py").write_text(REDUCE.format(steps=30))
    done = bare("run", "--profile", "tuned.yaml", "-np", "1", "-o", "kept", "train.py")
    assert "tuned.yaml was measured elsewhere: ranks: 2 there" in done.stderr
    assert "tensors" in done.stderr


def test_a_timeline_is_kept_as_recordings_and_merged_where_the_workbench_is(bare, call, tmp_path):
    (bare.folder / "train.py").write_text(MEET.format(steps=3))
    for name in ("trace.json.ranks", "trace.json.ranks-2"):
        done = bare("run", "-np", "2", "--timeline-filename", "trace.json", "train.py")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"hvdtune: The ranks' recordings are in {name}. ")
        command = line.partition(": hvdtune ")[2].split()
        assert command == ["timeline", "merge", name, "-o", "trace.json"]
    assert sorted(path.name for path in bare.folder.iterdir()) == [
        "trace.json.ranks", "trace.json.ranks-2", "train.py",
    ]  # fmt: skip
    command[2:] = [bare.folder / name, "-o", bare.folder / "trace.json"]
    code, _, err = call(*command)
    assert code == 0 and "slices of 2 ranks" in err
    assert (bare.folder / "trace.json").exists()


@pytest.mark.parametrize("more", [{}, {"HOROVOD_TIMELINE_MARK_CYCLES": "1"}], ids=["", "cycles"])
@pytest.mark.parametrize("launched", [True, False], ids=["launcher", "ranks"])
def test_horovods_timeline_is_made_in_its_format_where_the_workbench_is(bare, call, launched, more):
    (bare.folder / "train.py").write_text("import hvdtune.recording\n" + REDUCE.format(steps=3))
    words = ("run", "-np", "1", "train.py") if launched else ()
    program = None if launched else "train.py"
    done = bare(*words, program=program, HOROVOD_TIMELINE="trace.json", **more)
    assert not (bare.folder / "trace.json").exists()
    command = done.stderr.partition(": hvdtune ")[2].split("\n")[0].split()
    kept, target = bare.folder / "trace.json.ranks", bare.folder / "trace.json"
    paths = (kept, target) if not launched else (kept.name, target.name)
    cycles = ["--mark-cycles"] if more else []
    shape = ["timeline", "export", "--format", "horovod", *cycles]
    assert command == [*shape, str(paths[0]), "-o", str(paths[1])]
    assert call(*shape, kept, "-o", target)[0] == 0
    rows = json.loads(target.read_text())
    assert "NEGOTIATE_ALLREDUCE" in {row.get("name") for row in rows}
    assert ("CYCLE_START" in {row.get("name") for row in rows}) == bool(more)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("work", "--format horovod", "has no collectives"),
        ("ProfilerStep#3", "--format horovod", "has no collectives"),
        ("work", "--mark-cycles", "needs --format horovod"),
    ],
)
def test_what_cannot_be_in_horovods_format_is_refused(call, tmp_path, name, words, said):
    path = tmp_path / "other.json"
    path.write_text(f'[{{"ph": "X", "name": "{name}", "ts": 1, "dur": 2, "pid": 1, "tid": 1}}]')
    code, _, err = call("timeline", "export", path, *words.split(), "-o", tmp_path / "out.json")
    assert (code, said in err) == (2, True), err
    assert not (tmp_path / "out.json").exists()


def test_a_timeline_that_the_script_makes_is_kept_as_well(bare):
    (bare.folder / "train.py").write_text(
        "import hvdtune.recording as recording\n"
        "from hvdtune.core.rank.runtime import init, mark_step\n"
        "init(); recording.start_timeline('trace.json'); mark_step(); recording.stop_timeline()\n"
    )
    done = bare(program="train.py")
    kept = bare.folder / "trace.json.ranks"
    assert f"The ranks' recordings are in {kept}. " in done.stderr
    assert [path.name for path in kept.iterdir()] == ["rank-0.hvt"]


@pytest.mark.parametrize(
    ("words", "subject", "named_by"),
    [
        ("run --trials 2 train.py", "measuring with `hvdtune run`", "--workbench-python PATH"),
        ("run --autotune train.py", "measuring with `hvdtune run`", "--workbench-python PATH"),
        ("run --mode restart train.py", "measuring with `hvdtune run`", "--workbench-python PATH"),
        (
            "verify --b b.yaml train.py",
            "measuring with `hvdtune verify`",
            "--workbench-python PATH",
        ),
        ("aa train.py", "measuring with `hvdtune aa`", "--workbench-python PATH"),
        ("study list", "`hvdtune study list`", "HVDTUNE_WORKBENCH_PYTHON"),
        ("timeline stats x.json", "`hvdtune timeline stats`", "HVDTUNE_WORKBENCH_PYTHON"),
        ("timeline why x.json", "`hvdtune timeline why`", "HVDTUNE_WORKBENCH_PYTHON"),
        ("timeline record 1", "`hvdtune timeline record`", "HVDTUNE_WORKBENCH_PYTHON"),
        ("dashboard", "`hvdtune dashboard`", "HVDTUNE_WORKBENCH_PYTHON"),
    ],
)
def test_a_command_that_needs_the_workbench_says_so(
    call, tmp_path, monkeypatch, words, subject, named_by
):
    (tmp_path / "train.py").write_text("raise SystemExit('started')")
    (tmp_path / "b.yaml").write_text("cycle_time_ms: 2")
    monkeypatch.setattr(workbench, "PACKAGES", ("no_pandas", "json", "no_optuna"))
    assert call(*words.split()) == (
        1,
        "",
        f"hvdtune: error: {subject} needs the workbench, but no_pandas, no_optuna are missing. "
        f"Run pip install 'hvdtune[workbench]', or set a Python that has it with {named_by}.\n",
    )


@pytest.mark.parametrize("name", ["tune", "verify", "load_trace"])
def test_a_function_that_needs_the_workbench_says_so(tmp_path, monkeypatch, name):
    monkeypatch.setattr(workbench, "PACKAGES", ("no_pandas",))
    with pytest.raises(package.errors.HvdtuneError, match=rf"^hvdtune\.{name} needs .*'\.?$"):
        getattr(package, name)("train.py")


@pytest.fixture
def other(tmp_path):
    """The Python of another environment, where hvdtune and all that is installed here is found."""
    folder = tmp_path / "other"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "as_here.pth").write_text("\n".join(path for path in sys.path if path))
    return folder / "bin/python"


def test_another_python_merges_the_timeline_and_the_ranks_keep_theirs(bare, other):
    (bare.folder / "train.py").write_text(
        MEET.format(steps=3) + "import sys; print(sys.executable)\n"
    )
    options = ("--timeline-filename", "trace.json", "--workbench-python", other)
    done = bare("run", "-np", "2", *options, "train.py")
    assert done.stderr == "hvdtune: trace: trace.json\n"
    assert f"[1]<stdout>:{sys.executable}" in done.stdout.splitlines()
    found = bare("timeline", "stats", "--json", "trace.json", HVDTUNE_WORKBENCH_PYTHON=str(other))
    assert json.loads(found.stdout)


@pytest.mark.slow  # a study takes its time
@pytest.mark.parametrize("words", ["run --trials 1 --time-budget 6s", "aa --pairs 6"])
def test_another_python_tunes_ranks_of_this_one(bare, other, words):
    command, *options = words.split()
    steps = MEET.format(steps=10**6 if command == "aa" else 4000)
    (bare.folder / "train.py").write_text(f"import sys\nprint(sys.executable)\n{steps}")
    options += ["-np", "2", "--json", "--workbench-python", other, "-o", "kept"]
    done = bare(command, *options, "train.py", codes=(0, 3, 4))
    assert json.loads(done.stdout)["text"]
    assert sys.executable in (bare.folder / "kept/output/launch-0.log").read_text()


_FAULTS = {
    "absent": ": no such program.",
    "print(1/0)": " cannot import hvdtune (ZeroDivisionError: division by zero). Run pip",
    "print('[\"0.0.1\", []]')": f" has hvdtune 0.0.1, not {package.__version__}. Run pip",
    f'print(\'["{package.__version__}", ["optuna"]]\')': " lacks optuna. Run pip install",
    "print('Loading module')": " is not a Python interpreter, or prints additional text",
}


@pytest.mark.parametrize(("program", "fault"), _FAULTS.items(), ids=[*range(5)])
@pytest.mark.parametrize("by_option", [True, False], ids=["option", "variable"])
def test_a_python_without_the_same_workbench_is_refused(
    call, tmp_path, monkeypatch, program, fault, by_option
):
    (tmp_path / "train.py").write_text("raise SystemExit('started')")
    python = tmp_path / "python"
    if program != "absent":
        python.write_text(f"#!{sys.executable} -S\n{program}\n")
        python.chmod(0o755)
    if by_option:
        named, words = f"--workbench-python {python}", ("--workbench-python", python)
    else:
        named, words = f"HVDTUNE_WORKBENCH_PYTHON={python}", ()
        monkeypatch.setenv("HVDTUNE_WORKBENCH_PYTHON", str(python))
    code, out, err = call("run", "--trials", "2", *words, "train.py")
    assert (code, out) == (2, "")
    assert err.startswith(f"hvdtune: error: {named}{fault}")


def test_a_python_that_is_not_there_is_refused_though_nothing_needs_it(call, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('started')")
    code, out, err = call("run", "--workbench-python", "/proc/absent", "train.py")
    assert (code, out) == (2, "")
    assert err == "hvdtune: error: --workbench-python /proc/absent: no such program.\n"


def test_the_launcher_of_another_environment_knows_that_of_the_ranks(monkeypatch):
    ranks = Interpreter("/env/bin/python", "/env/lib", "3.10.4", {"torch": "2.4"})
    monkeypatch.setenv("HVDTUNE_TRAINING_PYTHON", ranks.note())
    assert of_ranks() == ranks
    handover.enter("a study", ["run"])  # is there already
    monkeypatch.delenv("HVDTUNE_TRAINING_PYTHON")
    assert of_ranks().executable == sys.executable
