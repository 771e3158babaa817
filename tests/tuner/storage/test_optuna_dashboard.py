"""optuna-dashboard, over real HTTP, on our studies."""

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.database import file_url, parse_url
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome
from tests.kit.programs import environ
from tests.kit.simulated_job import DEFAULT, KNOBS
from tests.tuner.traced_study import TracedStudy

pytest.importorskip("optuna_dashboard")

_PROGRAM = (
    "from importlib.metadata import entry_points; "
    "entry_points(group='console_scripts')['optuna-dashboard'].load()()"
)
Get = Callable[[str], bytes]


@contextlib.contextmanager
def dashboard(url: str, artifacts: Path) -> Iterator[Get]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [url, "--port", str(port), "--artifact-dir", str(artifacts)]
    server = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ(),
    )

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.read()

    try:
        for _ in range(600):
            assert server.poll() is None
            with contextlib.suppress(urllib.error.URLError):
                get("/api/meta")
                break
            time.sleep(0.1)
        yield get
    finally:
        server.kill()
        server.wait()


def only_study(get: Get, name: str) -> dict[str, Any]:
    listed = json.loads(get("/api/studies"))["study_summaries"]
    (number,) = [study["study_id"] for study in listed if study["study_name"] == name]
    return {"study_id": number, **json.loads(get(f"/api/studies/{number}"))}


def test_it_shows_a_runs_trials_and_hands_out_their_timelines(tmp_path: Path) -> None:
    traced = TracedStudy(tmp_path, keep=2)
    with traced.store:
        gains = [0.0, 0.05, 0.01]
        numbers = [traced.run_trial(gain) for gain in gains]
    url = file_url(tmp_path / "study.db").render_as_string()
    with dashboard(url, tmp_path / "artifacts") as get:
        study = only_study(get, "hvdtune")
        trials = study["trials"]
        assert [trial["number"] for trial in trials] == numbers
        assert [trial["values"] for trial in trials] == [[gain] for gain in gains]
        (artifact,) = trials[-1]["artifacts"]
        assert artifact["filename"] == f"trial-{numbers[-1]}.json.gz"
        path = f"/artifacts/{study['study_id']}/{trials[-1]['trial_id']}/{artifact['artifact_id']}"
        assert b'"traceEvents"' in gzip.decompress(get(path))


def test_it_opens_a_shared_study(tmp_path: Path, study_url: str, study_name: str) -> None:
    share = SharedStudy(study_url, study_name)
    with StudyStore(tmp_path, make_space(KNOBS, DEFAULT), TuneOptions(), share=share) as store:
        store.tell(store.ask()[0], TrialOutcome("complete", 0.02, 0.01, 8))
    url = parse_url(study_url).render_as_string(hide_password=False)
    with dashboard(url, tmp_path) as get:
        (trial,) = only_study(get, study_name)["trials"]
        assert trial["state"] == "Complete"
