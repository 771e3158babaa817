import subprocess
import sys

import pytest

import hvdtune
from hvdtune.cli import main


def _run(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code, *capsys.readouterr()


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return "train.py"


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        ("nonsense", 2, "No such command 'nonsense'"),
        ("run", 2, "Missing argument 'SCRIPT'"),
        ("run -np 0 train.py", 2, "'--num-proc' / '-np': it must be at least 1, not 0"),
        ("run -np two train.py", 2, "'--num-proc' / '-np': 'two' is not a whole number"),
        ("run --timeline-max-mb x train.py", 2, "'--timeline-max-mb': 'x' is not a number"),
        ("run --mode x train.py", 2, "'--mode': 'x' is not one of 'live', 'restart'"),
        ("dashboard --port 65536", 2, "'--port': it must be at most 65535, not 65536"),
        ("run train.py -np", 2, "option -np needs a value"),
        ("run --nope train.py", 2, "No such option: --nope"),
        ("run absent.py", 2, "there is no script absent.py"),
        ("run -np 2 absent-program", 2, "there is no program absent-program"),
        ("run -H a:b train.py", 2, "-H: 'a:b' is not a host"),
        (
            "run -H node7.invalid:2 train.py",
            1,
            "node7.invalid: this host cannot resolve the name (",
        ),
        ("run -np 5 -H localhost:4 train.py", 2, "the hosts have only 4 slots"),
        ("run -H localhost:1 --hostfile h train.py", 2, "-H or --hostfile, not both"),
        ("run --hostfile absent train.py", 2, "--hostfile absent: No such file"),
        ("run -H localhost:2 -np 3 train.py", 2, "error: -np 3: the hosts have only 2 slots"),
        ("run -o train.py train.py", 2, "cannot use the folder train.py"),
        ("run --transport rdma train.py", 2, "--transport"),
        ("run --time-budget soon train.py", 2, "'soon' is not a time such as"),
        ("run --time-budget 8m train.py", 2, "--time-budget needs --trials"),
        ("run --knobs a train.py", 2, "--knobs needs --trials"),
        ("run --trials 0 train.py", 2, "'--trials'"),
        ("run --profile absent.yaml train.py", 2, "cannot read absent.yaml"),
        ("run --timeline-filename no/dir/x.json train.py", 2, "--timeline-filename no/dir/x.json"),
        ("run --timeline-steps 5:9 train.py", 2, "--timeline-steps needs --timeline-filename"),
        (
            "run --timeline-filename t --timeline-steps 9:5 train.py",
            2,
            "'--timeline-steps': '9:5' has no",
        ),
        (
            "run --timeline-filename t --timeline-steps= train.py",
            2,
            "'--timeline-steps': it is empty",
        ),
        ("timeline record 1 --steps 5 --seconds 5", 2, "give --steps or --seconds, not both"),
        ("timeline view", 2, "Missing argument 'PATH"),
        ("timeline view --no-browser absent.json", 2, "absent.json"),
    ],
)
def test_a_users_mistake_is_one_line_with_the_right_code(capsys, script, words, code, fault):
    got, out, err = _run(capsys, *words.split())
    assert (got, out) == (code, "")
    assert err.startswith("hvdtune: error: ") and err.count("\n") == 1
    assert fault in err


def test_a_prefix_with_a_space_is_refused(capsys):
    code, _, err = _run(capsys, "dashboard", "--prefix", "http://a b/")
    assert code == 2
    assert "'--prefix': 'http://a b/' contains a space" in err


@pytest.mark.parametrize("words", [(), ("build",), ("timeline",)])
def test_a_command_alone_shows_what_it_can_do(capsys, words):
    code, out, err = _run(capsys, *words)
    assert (code, out) == (2, "")
    first, *more = err.splitlines()
    assert first == " ".join(("Usage: hvdtune", *words, "[OPTIONS] COMMAND [ARGS]..."))
    assert "Commands:" in more


def test_the_rule_for_options_after_the_script_is_in_the_help(capsys):
    code, out, _ = _run(capsys, "run", "--help")
    text = " ".join(out.split())
    assert code == 0
    assert "script, the options listed here from --num-proc to --knobs are hvdtune's" in text
    assert "`--` ends hvdtune's options" in text
    assert "--no-hierarchical-allreduce" in text


def test_the_version_is_printed(capsys):
    assert _run(capsys, "--version") == (0, f"hvdtune {hvdtune.__version__}\n", "")


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words):
    program = (
        "import sys; from hvdtune.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "click" in loaded
    assert loaded.isdisjoint(
        {"numpy", "pandas", "optuna", "rich", "torch", "scipy", "dash", "yaml"}
    )
    assert "hvdtune.core._native" not in done.stderr


_FEW_PROCESSES = """
import os, resource
from hvdtune.cli import main
import hvdtune.cli.run, hvdtune.workflows.launch
os.chdir("/")
if os.geteuid() == 0:
    os.setuid(54321)  # root may start any number of processes
for count in range(1, 6):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (count, count))
        main(["run", "-np", "2", "sh", "-c", "true"])
    os.wait()
"""


def test_a_limit_of_processes_is_one_line_wherever_it_is_reached(tmp_path):
    words = [sys.executable, "-c", _FEW_PROCESSES]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 5 and all(line.startswith("hvdtune: error: cannot") for line in lines)
    assert "hvdtune: error: cannot start a thread: the limit of processes is reached" in lines[0]


def test_a_missing_dashboard_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dash", None)
    monkeypatch.delitem(sys.modules, "hvdtune.dashboard.app", raising=False)
    code, _, err = _run(capsys, "timeline", "view", str(tmp_path))
    assert code == 1
    assert err == (
        "hvdtune: error: `hvdtune timeline view` needs the workbench, but dash is missing. Run pip "
        "install 'hvdtune[workbench]', or set a Python that has it with "
        "HVDTUNE_WORKBENCH_PYTHON.\n"
    )


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("loop", "Too many levels of symbolic links"),
        ("train.py/x", "Not a directory"),
        ("a" * 300, "File name too long"),
    ],
)
def test_a_path_that_the_system_refuses_is_named_with_the_reason(
    capsys, script, tmp_path, path, fault
):
    (tmp_path / "loop").symlink_to("loop")
    code, out, err = _run(capsys, "timeline", "stats", path)
    assert (code, out) == (1, "")
    assert err == f"hvdtune: error: {path}: {fault}\n"


def test_output_that_cannot_be_written_is_an_error_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hvdtune", "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ("hvdtune: error: operating system error: No space left on device\n")
