"""The Python API, on scripts that import no framework."""

import contextlib
import subprocess
import sys
import threading

import pytest

import hvdtune
from hvdtune.errors import UsageError
from hvdtune.workflows.session import run_identity

from ..kit.pages import Page
from ..kit.scripts import MEET
from ..kit.traces import event, write


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Writes train.py into an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def write(text, **values):
        (tmp_path / "train.py").write_text(text.format(**values) if values else text)
        return "train.py"

    return write


def test_the_package_loads_its_functions_when_they_are_used():
    program = (
        "import sys, hvdtune\n"
        "assert not [name for name in sys.modules if name.startswith('hvdtune.')]\n"
        "assert callable(hvdtune.tune) and callable(hvdtune.launch)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"numpy", "pandas", "optuna", "rich", "torch", "click"})


def test_the_package_shows_its_public_names_only():
    assert [name for name in dir(hvdtune) if not name.startswith("__")] == sorted(
        {
            *hvdtune.__all__,
            *{"errors", "keras", "tensorflow", "timeline", "torch"} & {*vars(hvdtune)},
        }
    )
    assert {"launch", "load_trace", "run", "tune", "verify"} == {*hvdtune.__all__}
    names = {}
    exec("from hvdtune import *", names)
    assert callable(names["tune"])


@pytest.mark.parametrize(
    ("started", "call"),
    [
        ("hvdtune.workflows.launch.launch", lambda: hvdtune.launch("train.py", ranks=10**5)),
        ("hvdtune.workflows.tune.tune", lambda: hvdtune.tune("train.py", ranks=10**5)),
        ("hvdtune.workflows.compare.compare", lambda: hvdtune.verify("train.py", ranks=10**5)),
        ("hvdtune.launcher.function.Job", lambda: hvdtune.run(print, np=10**5)),
    ],
    ids=["launch", "tune", "verify", "run"],
)
def test_more_ranks_than_a_host_bears_are_refused(train, monkeypatch, started, call):
    train("")
    monkeypatch.setattr(started, None)  # whatever happens, nothing is started
    with pytest.raises(UsageError, match=r"100000: this host has .* list the host with its slots"):
        call()


def test_a_launch_tells_of_its_end_and_prints_nothing(train, tmp_path, capfd):
    result = hvdtune.launch(train(MEET, steps=20), ranks=2, trace=tmp_path / "trace.json")
    assert (result.exit_code, result.reason, result.tail) == (0, "", ("ranks: 2",))
    assert result.traces == (tmp_path / "trace.json",)
    events = hvdtune.load_trace(*result.traces).events
    assert {*events["rank"]} == {0, 1}
    assert capfd.readouterr() == ("", "")


def test_a_trace_that_was_cut_off_is_warned_of_at_the_line_of_the_call(tmp_path):
    path = write(tmp_path / "trace.json", event("X", 1, dur=1), event("X", 2, dur=1))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning) as seen:
        trace = hvdtune.load_trace(path)
    assert [str(each.message) for each in seen] == list(trace.warnings)
    assert {each.filename for each in seen} == {__file__}


def test_a_launch_warns_at_the_line_of_the_call(train):
    script = train("")
    with pytest.warns(UserWarning) as seen:
        hvdtune.launch(script)  # which forms no job
    assert {each.filename for each in seen} == {__file__}


def test_a_script_that_fails_is_in_the_result(train, tmp_path):
    script = train("import sys; print('lost'); sys.exit(7)")
    result = hvdtune.launch([script, "--lr", "1"], run_dir=tmp_path / "run")
    assert (result.exit_code, result.tail) == (7, ("lost",))
    assert "exited with code 7" in result.reason
    assert "lost" in (tmp_path / "run/output/launch-0.log").read_text()


def test_a_verbose_launch_shows_what_its_ranks_write(train, capfd):
    script = train("import os; print(os.environ['COLOUR'])")
    with contextlib.suppress(UserWarning):  # a script that forms no job is warned of
        hvdtune.launch(script, env={"COLOUR": "blue"}, verbose=True)
    assert "[0]<stdout>:blue\n" in capfd.readouterr().out


def test_a_launch_in_another_thread_needs_no_signals(train):
    results = []
    script = train(MEET, steps=1)
    thread = threading.Thread(target=lambda: results.append(hvdtune.launch(script)))
    thread.start()
    thread.join()
    assert [result.exit_code for result in results] == [0]


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: hvdtune.launch("no.py"), "there is no script no.py"),
        (lambda: hvdtune.launch(""), "script is ''"),
        (lambda: hvdtune.launch(None), "script is None"),
        (lambda: hvdtune.launch(["train.py", "a\0b"]), "script is"),
        (lambda: hvdtune.tune(None), "script is None"),
        (lambda: hvdtune.verify(None), "script is None"),
        (lambda: hvdtune.launch(["train.py", 5]), "script is"),
        (lambda: hvdtune.launch("train.py", ranks=0), "ranks is 0, but must be a whole number"),
        (lambda: hvdtune.launch("train.py", ranks="2"), "ranks is '2'"),
        (lambda: hvdtune.launch("train.py", ranks=True), "ranks is True"),
        (lambda: hvdtune.launch("train.py", hosts=["a:2"]), "hosts is"),
        (lambda: hvdtune.launch("train.py", env={"A": 1}), "env is"),
        (
            lambda: hvdtune.launch("train.py", env={"A": "a\0b"}),
            "env is .* no string may contain NUL",
        ),
        (
            lambda: hvdtune.launch("train.py", env={"A=B": "a"}),
            "env is .* No name may be empty or contain '='",
        ),
        (lambda: hvdtune.launch("train.py", env={"": "a"}), "env is"),
        (lambda: hvdtune.launch("train.py", env={"A": "\ud800"}), "env is .* lone surrogate"),
        (lambda: hvdtune.launch("train.py", setting=["a=1"]), "setting is"),
        (lambda: hvdtune.launch("train.py", trace="."), "it is a directory"),
        (lambda: hvdtune.launch("train.py", run_dir="train.py"), "cannot use the folder train.py"),
        (lambda: hvdtune.launch("train.py", setting={"pace": 1}), "unknown knob pace"),
        (lambda: hvdtune.tune("train.py", knobs=["pace"]), "pace"),
        (lambda: hvdtune.tune("train.py", knobs="pace"), "knobs is 'pace', but must be a list"),
        (lambda: hvdtune.tune("train.py", trials=2.5), "trials is 2.5"),
        (lambda: hvdtune.tune("train.py", time_budget_s=float("nan")), "time_budget_s is nan"),
        (lambda: hvdtune.tune("train.py", time_budget_s="8s"), "a number of seconds above 0"),
        (lambda: hvdtune.tune("train.py", sampler="best"), "must be one of tpe"),
        (lambda: hvdtune.tune("train.py", seed=-1), "seed is -1"),
        (lambda: hvdtune.tune("train.py", objectives=["joy"]), "joy"),
        (lambda: hvdtune.verify("train.py", b="no.yaml"), "cannot read no.yaml"),
        (lambda: hvdtune.verify("train.py", b=5), "b is 5, but must be the path of a file, or a"),
        (lambda: hvdtune.verify("train.py", b={"pace": 2}), "unknown knob pace"),
        (lambda: hvdtune.verify("train.py", a={"cycle_time_ms": "x"}), "cycle_time_ms"),
        (lambda: hvdtune.verify("train.py", b="."), "is a folder: name a file in it"),
        (lambda: hvdtune.launch("train.py", profile="."), "is a folder: name a file in it"),
        (lambda: hvdtune.verify("train.py", pairs=5), "pairs is 5, but must be a whole number"),
        (lambda: hvdtune.launch("train.py", ranks=3, hosts="localhost:2"), "^ranks 3: the hosts"),
        (lambda: hvdtune.launch("train.py", hosts="localhost:x"), "^hosts: 'localhost:x' is not"),
        (
            lambda: hvdtune.launch("train.py", trace="no/dir/t.json"),
            r"^trace no/dir/t\.json: No such file or directory \(no/dir\); choose a file",
        ),
        (lambda: hvdtune.launch("train.py", env={"HVDTUNE_CPU_OPERATIONS": "mpi"}), "run --mpi`"),
        (lambda: hvdtune.tune("train.py", knobs=[]), "^knobs: no knob is named; omit it"),
        (lambda: hvdtune.tune("train.py", knobs=["cache_capacity"]), "with `hvdtune run --mode"),
        (lambda: hvdtune.run(print, np=2, hosts="localhost:1"), "run: num_proc 2: the hosts have"),
        (lambda: hvdtune.load_trace(), "needs the path"),
        (lambda: hvdtune.load_trace("no.json"), "no such file"),
        (lambda: hvdtune.load_trace(5), "path is 5"),
        (lambda: hvdtune.load_trace(None), "path is None"),
    ],
)
def test_wrong_arguments_are_usage_errors_and_start_nothing(train, tmp_path, call, fault):
    train("raise SystemExit('started')")
    with pytest.raises(UsageError, match=fault):
        call()
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_script_against_itself_has_a_noise_floor_and_pairs(train):
    result = hvdtune.verify(train(MEET, steps=10**6), ranks=2, pairs=6, run_dir="kept")
    # On a busy machine disturbed pairs are measured again, and count where most are disturbed.
    assert len(result.pairs) >= result.verdict.pairs >= 6
    assert result.verdict.launches == 3
    assert result.verdict.noise_floor_percent > 0
    assert result.verdict.text in result.report
    assert result.document()["kind"] == result.verdict.kind


def test_a_dict_is_compared_like_a_file_of_its_values(train, tmp_path, monkeypatch):
    script = train("")
    (tmp_path / "b.yaml").write_text("cycle_time_ms: 2.5")
    started = []

    def open_folder(session, identity, continues):
        started.append(identity)
        raise UsageError("nothing is to start")

    monkeypatch.setattr("hvdtune.workflows.session.Session.open_folder", open_folder)
    for b in ("b.yaml", {"cycle_time_ms": 2.5}):
        with pytest.raises(UsageError, match="nothing is to start"):
            hvdtune.verify(script, a={"cycle_time_ms": 1}, b=b)
    assert started[0] == started[1]
    assert [each["cycle_time_ms"] for each in started[1]["compare"]] == [1.0, 2.5]


def test_the_variables_of_a_study_are_told_by_name_without_their_values(train, monkeypatch):
    monkeypatch.setenv("INHERITED", "1")
    script, jobs = train(""), []

    def open_folder(session, identity, continues):
        jobs.append(session.job)
        raise UsageError("nothing is to start")

    monkeypatch.setattr("hvdtune.workflows.session.Session.open_folder", open_folder)
    for token in ("secret", "secret", "other"):
        env = {"INHERITED": "1", "TOKEN": token, "HVDTUNE_START_TIMEOUT_S": "50"}
        with pytest.raises(UsageError, match="nothing is to start"):
            hvdtune.tune(script, env=env)
    first, second, third = (run_identity(job, {}).variables for job in jobs)
    assert [*first] == ["TOKEN"]
    assert first == second != third
    assert "secret" not in first["TOKEN"]


@pytest.mark.slow
def test_the_example_of_the_page_tunes_and_uses_the_setting(train, capfd):
    train(MEET, steps=4000)
    example = Page("docs/python-api.md").block("example")
    assert example.count("time_budget_s=300") == 1
    names = {}
    exec(example.replace("time_budget_s=300", "time_budget_s=6").replace("trials=40", "trials=1"),
         names)  # fmt: skip
    study = names["study"]
    assert study.verdict.kind in ("improved", "default", "unstable", "noisy")
    assert study.profile.setting == study.setting
    assert (study.exit_code, study.tail) == (0, ("ranks: 2",))
    assert study.verdict.text in capfd.readouterr().out
    with pytest.raises(AttributeError):
        study.exit_code = 1
