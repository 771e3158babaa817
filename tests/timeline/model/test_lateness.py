from pathlib import Path

from hvdtune.timeline import Trace, lateness, merge, read, tensor_table, write_chrome
from tests.kit import rank_files as files

US = 1000


def announce(begin_us: int, *, name: int = 1, seq: int = 0, process_set: int = 0) -> bytes:
    begin, arg = begin_us * US, 1 + 2 * process_set
    return files.record("NEGOTIATE", begin, begin + 500 * US, name=name, seq=seq, arg=arg)


def merged(folder: Path, *ranks: list[bytes]) -> Trace:
    return merge(
        files.rank_file(folder, rank, items, size=len(ranks)) for rank, items in enumerate(ranks)
    )


def rows(trace: Trace) -> list[tuple[str, int, int, int, int]]:
    return [tuple(row) for row in lateness(trace).itertuples(index=False)]


def test_the_last_rank_is_the_one_that_announced_last(tmp_path: Path) -> None:
    trace = merged(tmp_path, [announce(100)], [announce(170)], [announce(130)])
    assert rows(trace) == [("t1", 0, 0, 1, 70 * US)]


def test_process_sets_count_for_themselves(tmp_path: Path) -> None:
    world = [announce(10), announce(20, seq=1)]
    trace = merged(
        tmp_path,
        [*world, announce(500, process_set=2)],
        [announce(11), announce(19, seq=1)],
        [announce(503, process_set=2)],
    )
    assert rows(trace) == [("t1", 0, 0, 1, US), ("t1", 0, 1, 0, US), ("t1", 2, 0, 2, 3 * US)]


def test_times_are_compared_on_one_clock(tmp_path: Path) -> None:
    # Rank 1's clock is 1000 us behind: it announced first, 40 us before rank 0.
    paths = [
        files.rank_file(tmp_path, 0, [announce(5_000)], size=2),
        files.rank_file(
            tmp_path,
            1,
            [*(files.clock(at, 1000 * US, 2000) for at in range(0, 5000, 1000)), announce(3_960)],
            size=2,
            host="beta",
        ),
    ]
    assert rows(merge(paths)) == [("t1", 0, 0, 0, 40 * US)]


def test_less_than_the_clocks_can_tell_names_nobody(tmp_path: Path) -> None:
    uneven = [files.clock(at * US, at % 100 * 4 * US, 300 * US) for at in range(0, 5000, 50)]
    paths = [
        files.rank_file(tmp_path, 0, [announce(100)], size=2),
        files.rank_file(tmp_path, 1, [*uneven, announce(90)], size=2, host="beta"),
    ]
    trace = merge(paths)
    assert trace.meta["clock"][1]["residual_us"] > 50
    assert lateness(trace)["last_rank"].tolist() == [-1]


def test_what_one_rank_alone_announced_has_no_last_rank(tmp_path: Path) -> None:
    trace = merged(tmp_path, [announce(10), announce(30, seq=1)], [announce(12)])
    assert [row[2] for row in rows(trace)] == [0]


def test_what_an_old_coordinator_recorded_counts(tmp_path: Path) -> None:
    late = files.record("LATE", 500 * US, 507 * US, name=1, arg=0)
    trace = merged(tmp_path, [announce(100), late], [announce(150), late])
    assert rows(trace) == [("t1", 0, 0, 0, 7 * US)]


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
