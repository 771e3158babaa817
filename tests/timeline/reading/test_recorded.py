"""The C++ recorder and the Python reader, joined by files of a process that was killed."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from hvdtune.timeline import read

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path_factory.mktemp("recorder") / "record_until_killed"
    sources = [*(ROOT / "csrc/base").glob("*.cc"), *(ROOT / "csrc/timeline").glob("*.cc")]
    main = Path(__file__).with_name("record_until_killed.cc")
    flags = ["-std=c++20", "-O1", "-pthread", f"-I{ROOT / 'csrc'}", "-o", str(program)]
    # As one unit: most of the time goes into the headers.
    included = [word for source in sources for word in ("-include", str(source))]
    subprocess.run([compiler, *flags, *included, str(main)], check=True)
    return program


def record_and_kill(program: Path, path: Path, max_bytes: int, wait_for: Path, size: int) -> None:
    process = subprocess.Popen([program, path, str(max_bytes)])
    try:
        give_up = time.monotonic() + 100
        while not (wait_for.exists() and wait_for.stat().st_size >= size):
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("size", [1_000, 400_000, 1_500_000])
def test_a_killed_rank_can_be_read(recording: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "rank-0.hvt"
    record_and_kill(recording, path, 0, path, size)
    trace = read(path)
    events = trace.events
    assert len(events) >= (size - 20_000) // 40
    done = events[events["kind"] == "ALLREDUCE"]
    assert (done["name"].astype(str) == "tensor " + (done["seq"] % 300).astype(str)).all()
    assert any("did not close" in warning for warning in trace.warnings)


def test_a_killed_rank_with_a_size_cap_keeps_its_newest_records(
    recording: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rank-0.hvt"
    record_and_kill(recording, path, 600_000, path.with_name("rank-0.hvt.1"), 200_000)
    kept = read(path).events
    total = path.stat().st_size + path.with_name("rank-0.hvt.1").stat().st_size
    assert total <= 600_000
    assert len(kept) >= 5_000
    seq = kept["seq"].drop_duplicates().sort_values()
    assert seq.iloc[-1] - seq.iloc[0] + 1 - len(seq) <= sum(read(path).meta["dropped"].values())
