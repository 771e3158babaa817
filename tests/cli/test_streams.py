"""Commands and ranks whose standard streams are closed, or cannot encode what is shown."""

import json
import os
import subprocess
import sys

import pytest

from tests.kit import programs

_RANK = """
init()
places = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
open(f"done-{rank()}", "w").write(" ".join(places))
print("printed")
"""
_CLOSINGS = [">&-", "2>&-", "<&- >&- 2>&-"]


def run_closed(closing, words, folder):
    """Run a command with some of its streams closed."""
    words = ["sh", "-c", f'exec "$@" {closing}', "sh", *words]
    return subprocess.run(
        words, cwd=folder, env=programs.environ(), capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("closing", _CLOSINGS)
def test_a_job_runs_with_closed_streams(script, tmp_path, closing):
    script(_RANK)
    done = run_closed(closing, programs.hvdtune("run", "-np", "2", "train.py"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for rank in range(2):
        places = (tmp_path / f"done-{rank}").read_text().split()
        assert places[0] == os.devnull and all(place.startswith("pipe:") for place in places[1:])
    shown = "" if ">&-" in closing.split() else "[0]<stdout>:printed [1]<stdout>:printed"
    assert " ".join(sorted(done.stdout.splitlines())) == shown


@pytest.mark.parametrize("closing", [_CLOSINGS[-1], ">&-"])
@pytest.mark.parametrize(
    "call",
    [
        "from hvdtune.core.rank.runtime import init; init()",
        "import hvdtune; assert hvdtune.run(abs, (-7,)) == [7]",
    ],
    ids=["init", "a-function"],
)
def test_a_process_with_closed_streams_opens_nothing_in_their_place(tmp_path, closing, call):
    body = f"import os\n{call}\n" + (
        "places = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "open('done', 'w').write(' '.join(places))\n"
    )
    done = run_closed(closing, [sys.executable, "-c", body], tmp_path)
    assert done.returncode == 0, done.stderr
    places = (tmp_path / "done").read_text().split()
    assert places[1] == os.devnull
    assert (places[0], places[2]) == (os.devnull,) * 2 or closing == ">&-"


def test_a_command_with_closed_stdout_reports_its_failure_on_stderr(tmp_path):
    done = run_closed(">&-", programs.hvdtune("timeline", "stats", "absent.json"), tmp_path)
    assert done.returncode != 0
    assert "absent.json" in done.stderr and "Traceback" not in done.stderr


def named(folder, file):
    events = [{"ph": "X", "name": "Größe→λ", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]
    (folder / file).write_text(json.dumps(events, ensure_ascii=False), encoding="utf-8")


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["c", "c-without-utf-8", "ascii", "latin-1"],
)
def test_text_that_the_locale_lacks_is_shown_in_some_way(tmp_path, variables):
    named(tmp_path, "trace.json")
    words = programs.hvdtune("timeline", "stats", "trace.json")
    environ = programs.environ(**variables)
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert b"Gr" in done.stdout and b"Error" not in done.stderr


def test_a_file_whose_name_is_no_text_is_exported(tmp_path):
    name = os.fsdecode(b"bad\xff.json")
    named(tmp_path, name)
    words = ("timeline", "export", name, "-o", "out.json")
    programs.call_cli(*words, folder=tmp_path)
    assert "Größe→λ" in (tmp_path / "out.json").read_text(encoding="utf-8")
