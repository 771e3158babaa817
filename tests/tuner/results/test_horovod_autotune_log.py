import random
from pathlib import Path

import pytest

from hvdtune.errors import UsageError
from hvdtune.tuner.results.horovod_autotune_log import (
    Assessment,
    AutotuneLog,
    assess,
    fitted,
    read_autotune_log,
)
from tests.kit.simulated_job import DEFAULT, KNOBS

USUAL = {**DEFAULT, "hierarchical_allgather": False, "torus_allreduce": False}
HEADER = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
    "cycle_time_ms,tensor_fusion_threshold,score"
)
# Horovod 0.28 writes a blank after the third value.
FINISHED = ["0,0,0, 1,5,4,439.25", "0,0,0, 1,50,32,401.5", "0,0,0, 1,10.3,8.25,455.1"]
NEVER_MEASURED = "1,0,0, 1,10.3,8.25,401.5"


def log(tmp_path: Path, rows: list[str], header: str = HEADER) -> AutotuneLog:
    path = tmp_path / "autotune.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return read_autotune_log(path)


def assessed(tmp_path: Path, rows: list[str], header: str = HEADER) -> Assessment:
    return assess(log(tmp_path, rows, header), USUAL)


def test_the_last_row_of_a_finished_log_is_a_choice_and_no_measurement(tmp_path: Path) -> None:
    found = log(tmp_path, [*FINISHED, FINISHED[-1]])

    assert len(found.rows) == 3
    assert found.choice is not None
    assert found.choice.setting["cycle_time_ms"] == 10.3
    assert found.choice.setting["fusion_threshold_bytes"] == 8.25 * 2**20
    assert found.choice.setting["cache_enabled"] is True


def test_without_repeats_nothing_can_be_told(tmp_path: Path) -> None:
    found = assessed(tmp_path, [*FINISHED, FINISHED[-1]])

    assert (found.repeats, found.noise_percent, found.ci_percent) == (0, None, None)
    assert any("so noise is unknown" in said for said in found.sentences())


@pytest.mark.parametrize(
    ("rows", "finished", "was_measured"),
    [
        pytest.param([*FINISHED, FINISHED[-1]], True, True, id="finished"),
        pytest.param(FINISHED, False, True, id="cut-off-with-its-best-score-as-choice"),
        pytest.param([*FINISHED, NEVER_MEASURED], True, False, id="a-choice-that-no-row-has"),
    ],
)
def test_how_a_log_came_to_its_choice_is_told(
    tmp_path: Path, rows: list[str], finished: bool, was_measured: bool
) -> None:
    found = assessed(tmp_path, rows)

    assert (found.finished, found.was_measured) == (finished, was_measured)
    assert (found.chosen["cycle_time_ms"], found.measurements) == (10.3, 3)
    assert any("was never measured" in said for said in found.sentences()) != was_measured


def test_repeats_give_the_noise_and_an_interval_over_the_default(tmp_path: Path) -> None:
    source = random.Random(1)
    rows = [f"0,0,0, 1,1,128,{source.gauss(400, 4):.6g}" for _ in range(12)]
    rows += [f"0,0,0, 1,5,64,{source.gauss(440, 4):.6g}" for _ in range(12)]
    found = assessed(tmp_path, rows)

    assert (found.settings, found.repeats, found.over_default) == (2, 22, True)
    assert found.noise_percent == pytest.approx(1.0, abs=0.4)
    assert found.ci_percent is not None
    assert found.ci_percent[0] < 10 < found.ci_percent[1]
    assert found.alike == 0


def test_the_best_of_many_equal_settings_is_rarely_called_different(tmp_path: Path) -> None:
    claims = 0
    for seed in range(60):
        source = random.Random(seed)
        rows = [f"0,0,0, 1,{1 + n % 10},64,{source.gauss(400, 8):.6g}" for n in range(30)]
        found = assessed(tmp_path, rows)
        claims += found.alike < 9

    assert claims <= 12


def test_a_log_of_an_older_horovod_is_read(tmp_path: Path) -> None:
    header = "hierarchical_allreduce,hierarchical_allgather,cycle_time_ms,"
    header += "tensor_fusion_threshold,score"
    found = log(tmp_path, ["0,1,5,4,400"], header)

    assert set(found.rows[0].setting) == {
        "hierarchical_allreduce",
        "hierarchical_allgather",
        "cycle_time_ms",
        "fusion_threshold_bytes",
    }


def test_a_cycle_time_that_hvdtune_does_not_have_is_brought_into_its_range() -> None:
    setting, said = fitted({"cycle_time_ms": 78.5, "cache_enabled": True}, KNOBS)

    assert setting == {"cycle_time_ms": 50.0, "cache_enabled": True}
    assert said == ["cycle_time_ms = 78.5 is outside hvdtune's range: using 50.0"]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([], HEADER, "has no measurement"),
        (["0,0,0"], HEADER, r"csv:2: 3 values for 7 columns"),
        (["0,0,0,1,fast,4,400"], HEADER, r"csv:2: a value is not a number"),
        (["0,0,0,1,5,4,nan"], HEADER, r"csv:2: score cannot be nan"),
        (["0,0,0,1,5,4,0"], HEADER, r"csv:2: score cannot be 0"),
        (["0,0,0,1,-5,4,400"], HEADER, r"csv:2: cycle_time_ms cannot be -5"),
        (["0,0,0,1,5,inf,400"], HEADER, r"csv:2: tensor_fusion_threshold cannot be inf"),
        (["1,2"], "a,score", "no column cycle_time_ms"),
        ([], "cycle_time_ms,tensor_fusion_threshold,score,plus_minus", "own table of trials"),
        ([], "cycle_time_ms,tensor_fusion_threshold,score,more", "an unknown column 'more'"),
    ],
)
def test_what_is_no_log_is_one_line(
    tmp_path: Path, rows: list[str], header: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        log(tmp_path, rows, header)
    assert "\n" not in str(caught.value)


def test_a_missing_log_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_autotune_log(tmp_path / "none.csv")
