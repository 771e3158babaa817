from pathlib import Path

import pytest

from hvdtune.timeline import Trace, lateness, merge, read, tensor_table, write_chrome
from tests.kit import rank_files as files

US = 1000


def announce(begin_us: int, *, name: int = 1, seq: int = 0, process_set: int = 0) -> bytes:
    begin, arg = begin_us * US, 1 + 2 * process_set
    return files.record("NEGOTIATE", begin, begin + 500 * US, name=name, seq=seq, arg=arg)


def merged(folder: Path, *ranks: list[bytes], last_host: str = "alpha") -> Trace:
    hosts = ["alpha"] * (len(ranks) - 1) + [last_host]
    return merge(
        files.rank_file(folder, rank, items, size=len(ranks), host=host)
        for rank, (items, host) in enumerate(zip(ranks, hosts, strict=True))
    )


def rows(trace: Trace) -> list[tuple[str, int, int, int, int]]:
    return [tuple(row) for row in lateness(trace).itertuples(index=False)]


OLD_COORDINATOR = files.record("LATE", 500 * US, 507 * US, name=1, arg=0)


@pytest.mark.parametrize(
    ("ranks", "last"),
    [
        pytest.param(
            [[announce(100)], [announce(170)], [announce(130)]],
            [("t1", 0, 0, 1, 70 * US)],
            id="the one that announced last",
        ),
        pytest.param(
            [
                [announce(10), announce(20, seq=1), announce(500, process_set=2)],
                [announce(11), announce(19, seq=1)],
                [announce(503, process_set=2)],
            ],
            [("t1", 0, 0, 1, US), ("t1", 0, 1, 0, US), ("t1", 2, 0, 2, 3 * US)],
            id="process sets count for themselves",
        ),
        pytest.param(
            [[announce(10), announce(30, seq=1)], [announce(12)]],
            [("t1", 0, 0, 1, 2 * US)],
            id="none where one rank alone announced",
        ),
        pytest.param(
            [[announce(100), OLD_COORDINATOR], [announce(150), OLD_COORDINATOR]],
            [("t1", 0, 0, 0, 7 * US)],
            id="the one that an old coordinator recorded",
        ),
    ],
)
def test_the_last_rank_is(
    tmp_path: Path, ranks: list[list[bytes]], last: list[tuple[str, int, int, int, int]]
) -> None:
    assert rows(merged(tmp_path, *ranks)) == last


def test_times_are_compared_on_one_clock(tmp_path: Path) -> None:
    # Rank 1's clock is 1000 us behind: it announced first, 40 us before rank 0.
    behind = [files.clock(at, 1000 * US, 2000) for at in range(0, 5000, 1000)]
    trace = merged(tmp_path, [announce(5_000)], [*behind, announce(3_960)], last_host="beta")
    assert rows(trace) == [("t1", 0, 0, 0, 40 * US)]


def test_less_than_the_clocks_can_tell_names_nobody(tmp_path: Path) -> None:
    uneven = [files.clock(at * US, at % 100 * 4 * US, 300 * US) for at in range(0, 5000, 50)]
    trace = merged(tmp_path, [announce(100)], [*uneven, announce(90)], last_host="beta")
    assert trace.meta["clock"][1]["residual_us"] > 50
    assert lateness(trace)["last_rank"].tolist() == [-1]


def test_an_export_keeps_process_sets_and_who_was_late(tmp_path: Path) -> None:
    trace = merged(tmp_path, [announce(10, process_set=7)], [announce(15, process_set=7)])
    write_chrome(trace, tmp_path / "trace.json")
    assert (
        '"cached":1,"process_set":7,"last_rank":1,"late_us":5.000'
        in (tmp_path / "trace.json").read_text()
    )
    assert rows(read(tmp_path / "trace.json")) == rows(trace)


def test_the_table_names_the_rank_that_is_mostly_late(tmp_path: Path) -> None:
    def ranks(begins: list[int]) -> list[bytes]:
        items = [announce(begin, seq=seq) for seq, begin in enumerate(begins)]
        done = (files.record("ALLTOALL", 900 * US, 950 * US, name=1, seq=seq) for seq in range(4))
        return [*items, *done]

    trace = merged(tmp_path, ranks([10, 20, 30, 44]), ranks([12, 22, 32, 40]))
    row = tensor_table(trace).iloc[0]
    assert (row["operation"], row["last_rank"], row["last_rank_percent"]) == ("ALLTOALL", 1, 75)
