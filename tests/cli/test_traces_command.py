import json
import os
import shutil
from pathlib import Path

import pytest

from hvdtune.cli import main
from hvdtune.cli.why import EXIT_INCOMPLETE
from hvdtune.timeline import load
from hvdtune.timeline.reading.formats.hvt import BLOCK
from tests.kit.rank_files import GOLDEN
from tests.kit.traces import HOROVOD, KINETO, SPEEDSCOPE

SIMPLE = SPEEDSCOPE / "simple.json"


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


@pytest.mark.parametrize(
    ("path", "said", "warned"),
    [
        (KINETO, ["kineto, 5,830 slices", "ALLREDUCE"], ""),
        (HOROVOD / "horovod_resnet50_np2_sigkill.json.gz", ["NEGOTIATE"], ""),
        (SPEEDSCOPE / "simple-partial.json", [], "hvdtune: warning: "),
    ],
    ids=["kineto", "killed-run-of-horovods", "what-could-not-be-read"],
)
def test_stats_says_what_is_in_a_trace_and_warns_of_what_is_not(capsys, path, said, warned):
    assert run("timeline", "stats", path) == 0
    told = capsys.readouterr()
    assert all(part in told.out for part in said)
    assert told.err.startswith(warned) and bool(told.err) == bool(warned)


def test_stats_of_a_folder_names_it_and_the_number_of_its_files(tmp_path, capsys):
    for rank in (0, 1):
        shutil.copy(GOLDEN / "rank-0.hvt", tmp_path / f"rank-{rank}.json")
    (tmp_path / "rank-1.json").write_text(SIMPLE.read_text())
    assert run("timeline", "stats", tmp_path) == 0
    assert f"{tmp_path} (2 files): hvdtune, chrome, " in capsys.readouterr().out


@pytest.mark.parametrize("command", ["stats", "why", "export"])
def test_the_folder_of_a_run_whose_launcher_was_killed_opens(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "killed" / "ranks" / "launch-0"
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN / "rank-0.hvt", folder)
    (tmp_path / "killed" / "run.json").write_text('{"v": 1, "command": ["train.py"]}')
    assert run("timeline", command, "killed") == (EXIT_INCOMPLETE if command == "why" else 0)


def test_stats_for_programs_is_one_document(capsys):
    assert run("timeline", "stats", "--json", SPEEDSCOPE / "too-many-end-events.json") == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["counts"]["E"] == {"read": 4, "shown": 2, "reported": 2}
    assert "2 'E' events have no begin event" in document["warnings"][0]


@pytest.mark.parametrize("limit", [1, 1 << 40])
@pytest.mark.parametrize("command", ["stats", "merge", "export", "query", "view", "why"])
def test_a_rank_in_two_files_is_refused(command, limit, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hvdtune.timeline.reading.cache.MIN_BYTES", limit)
    for path in KINETO.iterdir():
        shutil.copy(path, tmp_path)
        shutil.copy(path, tmp_path / f"copy-{path.name}")
    target = ["-o", tmp_path / "target.json"] if command in ("merge", "export") else []
    sql = ["SELECT 1"] if command == "query" else []
    assert run("timeline", command, *sql, tmp_path, *target) == 2
    told = capsys.readouterr()
    first, second = sorted(tmp_path.glob("*rank0.json.gz"))
    assert f"rank 0 is in two files: {first}, {second}; 1 more rank is in several" in told.err
    assert told.err.endswith("name one trace of each rank, or their merged trace alone\n")
    assert told.out == ""


def test_merge_joins_the_ranks_of_a_folder(tmp_path, capsys):
    assert run("timeline", "merge", KINETO, "-o", tmp_path / "all.json.gz") == 0
    assert "5,830 slices of 2 ranks" in capsys.readouterr().err
    assert set(load(tmp_path / "all.json.gz").slices["rank"]) == {0, 1}


def test_ranks_of_ours_are_merged_as_after_a_run(tmp_path):
    assert run("timeline", "merge", GOLDEN / "rank-0.hvt", "-o", tmp_path / "trace.json") == 0
    assert (tmp_path / "trace.json").read_text() == (GOLDEN / "trace.json").read_text()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("chrome", "simple.json"), ("perfetto", "simple.json"), ("parquet", "simple.parquet"),
     ("csv", "simple.csv")],
)  # fmt: skip
def test_export_writes_beside_where_one_stands(kind, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("timeline", "export", "--format", kind, "--json", SIMPLE) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["output"] == name
    assert document["slices"] == 4
    assert (tmp_path / name).exists()


def test_an_export_for_horovods_tools_says_what_it_leaves_out(tmp_path, capsys):
    source, target = GOLDEN / "trace.json", tmp_path / "timeline.json"
    assert run("timeline", "export", "--format", "horovod", source, "-o", target) == 0
    told = capsys.readouterr().err
    assert f"{target}: {load(target).slice_count} slices of" in told
    assert f" of the trace's {load(source).slice_count} slices are omitted: " in told
    assert run("timeline", "export", "--json", "--format", "horovod", source, "-o", target) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["slices"] == load(target).slice_count
    assert all(f"{count} {kind}" in told for kind, count in document["left_out"].items())


def test_an_export_never_replaces_its_source(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(SIMPLE, "simple.json")
    assert run("timeline", "export", "simple.json") == 0
    assert (tmp_path / "simple-export.json").exists()
    assert run("timeline", "export", "simple.json", "-o", "./simple.json") == 2
    assert "would overwrite itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["ranks"], "ranks/one.json"),
        (["ranks"], "link.json"),
        (["link.json"], "ranks/one.json"),
        (["ranks/one.json"], "same.json"),
    ],
)
@pytest.mark.parametrize("command", ["merge", "export", "report"])
def test_no_output_replaces_what_is_read(command, words, output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("ranks").mkdir()
    for name in ("ranks/one.json", "ranks/two.json"):
        shutil.copy(SIMPLE, name)
    Path("link.json").symlink_to("ranks/one.json")
    Path("same.json").hardlink_to("ranks/one.json")
    assert run("timeline", command, *words, "-o", output) == 2
    assert f"{output} would overwrite itself" in capsys.readouterr().err
    for name in ("ranks/one.json", "ranks/two.json"):
        assert Path(name).read_bytes() == SIMPLE.read_bytes()


@pytest.mark.parametrize("command", ["merge", "export", "report"])
def test_no_output_replaces_what_ranks_recorded(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("run/ranks").mkdir(parents=True)
    shutil.copy(GOLDEN / "rank-0.hvt", "run/ranks")
    shutil.copy(GOLDEN / "trace.json", "run")
    assert run("timeline", command, "run", "-o", "run/ranks/rank-0.hvt") == 2
    assert "is a rank's recording" in capsys.readouterr().err
    assert Path("run/ranks/rank-0.hvt").read_bytes() == (GOLDEN / "rank-0.hvt").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        (["stats", "none.json"], 2, "none.json: no such file or folder"),
        (["export", "none.json"], 2, "none.json: no such file or folder"),
        pytest.param(["stats", "\x1b[2J"], 2, "\\x1b[2J: no such file", id="steers-the-terminal"),
        (["stats", "torn.json"], 1, "torn.json"),
        (["export", SIMPLE, "-o", "none/a.json"], 1, "cannot write"),
        *(
            ([command, "pipe.json"], 1, "cannot read pipe.json: not a regular file")
            for command in ("stats", "why", "export", "view")
        ),
    ],
)
def test_a_mistake_is_one_line(words, code, fault, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("torn.json").write_text("[1, 2")
    os.mkfifo("pipe.json")
    assert run("timeline", *words) == code
    told = capsys.readouterr().err
    assert told.startswith("hvdtune: error: ") and told.count("\n") == 1
    assert fault in told


@pytest.mark.parametrize("command", ["stats", "why", "diff", "report", "export"])
@pytest.mark.parametrize("text", ["[]", '{"traceEvents":[]}', "["])
def test_a_trace_without_events_is_no_failure(command, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(text)
    code = run("timeline", command, *["a.json"] * (2 if command == "diff" else 1))
    assert code == (EXIT_INCOMPLETE if command in ("why", "diff") else 0)


@pytest.mark.parametrize("command", ["stats", "why"])
def test_a_trace_without_events_is_said_to_hold_nothing(command, tmp_path, capsys):
    (tmp_path / "a.json").write_text("[]")
    run("timeline", command, tmp_path / "a.json")
    told = capsys.readouterr().out
    assert "he trace holds no slices" in told
    assert "0.000" not in told and "program" not in told
    run("timeline", command, "--json", tmp_path / "a.json")
    document = json.loads(capsys.readouterr().out)
    assert document.get("duration_ms") is None and not document.get("step_ms")


def test_names_from_a_trace_are_no_markup(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text('[{"ph":"X","name":"[red]x[/red]","ts":1,"dur":2}]')
    assert run("timeline", "stats", path) == 0
    assert "[red]x[/red]" in capsys.readouterr().out


STEERING = "a\x1b]0;title\x07b\x9bm\u202egnp\u2066\r\nc"


@pytest.mark.parametrize("command", ["stats", "why", "diff", "report", "export"])
def test_names_never_steer_the_terminal(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    named = {"name": STEERING, "pid": STEERING, "tid": STEERING, "cat": STEERING}
    events = [named | {"ph": "X", "ts": k, "dur": 2} for k in range(9)]
    head = {"otherData": {"hvdtune": 1, "warnings": [STEERING], "events": 0}}
    path = tmp_path / "a\x1b[31m.json"
    path.write_text(json.dumps(head | {"traceEvents": events}))
    run("timeline", command, *[path] * (2 if command == "diff" else 1))
    told = capsys.readouterr()
    for letter in "\x1b\x07\x9b\u202e\u2066\r":
        assert letter not in told.out + told.err
    assert "\\x1b" in told.out + told.err
    if command == "stats":
        assert "a\\x1b]0;title\\x07b\\x9bm\\u202egnp\\u2066\\r\\nc" in told.out


@pytest.mark.parametrize(
    ("folder", "older", "said"),
    [
        (".trace.json.ranks-1/rank-0.part", False, "is not written yet: ranks still record it in"),
        (".trace.json.k2x_1ab9/rank-0.hvt", False, "is not written yet: ranks still record it in"),
        (
            ".trace.json.ranks-1/rank-0.part",
            True,
            "belongs to an earlier job: ranks record a new one in",
        ),
        (".trace.json.gz.ranks/rank-0.part", True, ""),
    ],
    ids=["by-the-script", "by-the-launcher", "beside-an-earlier-one", "of-another-name"],
)
def test_a_trace_is_read_by_its_name_while_it_is_recorded(tmp_path, capsys, folder, older, said):
    trace = tmp_path / "trace.json"
    if older:
        trace.write_text(SIMPLE.read_text())
        os.utime(trace, (1, 1))
    (tmp_path / folder).parent.mkdir()
    # Without its last block, as a rank writes it.
    (tmp_path / folder).write_bytes((GOLDEN / "rank-0.hvt").read_bytes()[: -BLOCK.size - 16])
    assert run("timeline", "stats", trace) == 0
    told = capsys.readouterr()
    assert "did not close it" not in told.err
    assert (" chrome, " if older else " hvdtune, ") in told.out
    assert f"{trace} {said}" in told.err if said else not told.err
    # A trace that is younger than what a killed job has left says nothing of that.
    trace.write_text(SIMPLE.read_text())
    assert run("timeline", "stats", trace) == 0
    assert not capsys.readouterr().err
