import numpy as np
import pytest

from hvdtune.dashboard.swimlane import Swimlane
from hvdtune.dashboard.tiles import MAX_SLICES, TileWindow

from .decode import decode
from .synthetic import HOSTILE, Recording, training_trace


@pytest.fixture(scope="module")
def swimlane():
    return Swimlane.of(training_trace())


def test_a_tile_has_every_slice_that_touches_its_window(swimlane):
    window = TileWindow.of(44e6, 84e6, 500)
    tile = decode(swimlane.tile(window))
    events = swimlane.trace.events
    kinds = ["NEGOTIATE", "QUEUE", "PACK", "BUCKET", "UNPACK"]
    inside = (events["begin_ns"] < 84e6) & (events["end_ns"] >= 44e6) & events["kind"].isin(kinds)
    assert (
        sorted(row for row in tile["row"].tolist() if row >= 0) == np.flatnonzero(inside).tolist()
    )
    assert tile["exact"]
    named = {tile["names"][code] for code in tile["name"]}
    assert {"model.layer0.weight", HOSTILE, "BUCKET", "BUSY"} <= named


def test_slices_lie_in_the_lane_of_their_rank(swimlane):
    tile = decode(swimlane.tile(TileWindow.of(44e6, 84e6, 500)))
    ranks = swimlane.trace.events["rank"].to_numpy()
    known = tile["row"] >= 0
    of_lane = np.array([rank for rank, _, _ in tile["labels"]])
    assert np.array_equal(of_lane[tile["lane"][known]], ranks[tile["row"][known]])


def test_steps_cycles_and_settings_are_marked(swimlane):
    tile = decode(swimlane.tile(TileWindow.of(0, swimlane.last_ns, 800)))
    assert [text for _, text in tile["steps"]] == [f"step {n}" for n in range(6)]
    assert tile["adopted"] == [[44_000_000, 'setting: {"cycle_time_ms": 0.5}']]
    assert len(tile["cycles"]) == 18


LANES = ["busy", "wait", "negotiate", "queue", "pack", "communicate", "unpack"]


@pytest.mark.parametrize(
    ("choice", "ranks", "further"),
    [
        pytest.param({}, [0, 1], [], id="all ranks"),
        pytest.param({"ranks": [1]}, [1], [], id="a rank"),
        pytest.param({"tensors": ["no such"]}, [0, 1], [(-1, "no such")], id="an unknown tensor"),
    ],
)
def test_lanes_can_be_chosen(swimlane, choice, ranks, further):
    tile = decode(swimlane.tile(TileWindow.of(0, 1e8, 100), **choice))
    own = [(rank, lane) for rank in ranks for lane in LANES]
    assert [(rank, label) for rank, label, _ in tile["labels"]] == own + further
    assert set(tile["lane"].tolist()) == set(range(len(own)))


def test_a_tensor_has_a_row_with_a_tick_of_each_rank_and_the_last_is_told_apart(swimlane):
    window = TileWindow.of(44e6, 84e6, 500)
    tile = decode(swimlane.tile(window, tensors=["model.layer3.weight"]))
    assert tile["labels"][-1] == [-1, "model.layer3.weight", 1]
    lane = len(tile["labels"]) - 1
    ticks = [tick for tick in tile["ticks"] if tick[0] == lane]
    assert sorted(tick[2] for tick in ticks) == [0, 1]
    last = max(ticks, key=lambda tick: tick[1])
    assert [tick[3] for tick in ticks if tick is not last] == [False]
    assert last[3]
    mine = tile["lane"] == lane
    assert sorted(tile["begin"][mine])[0] == min(tick[1] for tick in ticks)


def test_more_slices_than_can_be_told_apart_are_left_to_the_busy_shares():
    recording = Recording()
    for number in range(MAX_SLICES + 1):
        recording.add(0, "PACK", (10 * number, 10 * number + 4), bucket=number)
    swimlane = Swimlane.of(recording.trace(1))
    whole = decode(swimlane.tile(TileWindow.of(0, swimlane.last_ns, 100)))
    assert (whole["exact"], whole["slices"]) == (False, 0)
    assert set(whole["busy"][0].tolist()) <= {102, 103, 104}
    assert decode(swimlane.tile(TileWindow.of(0, swimlane.last_ns / 2, 100)))["exact"]


def test_the_last_instant_of_a_trace_is_in_the_whole_of_it():
    recording = Recording()
    recording.add(0, "PACK", (0, 10), bucket=1)
    recording.add(0, "PACK", (20, 20), bucket=2)
    swimlane = Swimlane.of(recording.trace(1))
    assert len(decode(swimlane.tile(TileWindow.of(0, swimlane.last_ns, 100)))["row"]) == 2


def test_the_overview_is_how_long_ranks_do_not_wait(swimlane):
    told = swimlane.overview(4)
    computing = [lane for lane in swimlane.lanes if lane.label == "busy"]
    edges = TileWindow.of(0, swimlane.last_ns, 4).edges_ns
    covered = sum(lane.covered_ns(edges) for lane in computing) / 2 / np.diff(edges)
    assert told["ranks"] == 2
    assert told["shares"] == pytest.approx(covered, abs=0.01)
    assert swimlane.overview(4, [1])["ranks"] == 1


def test_the_overview_of_a_rank_that_never_waits_is_of_its_busiest_lane():
    recording = Recording()
    recording.add(0, "STEP", (0, 40))
    recording.add(0, "PACK", (10, 20))
    recording.add(0, "QUEUE", (10, 15))
    swimlane = Swimlane.of(recording.trace(1))
    assert swimlane.overview(4)["shares"][:3] == pytest.approx([0, 1, 0], abs=0.01)


def test_totals_are_time_covered(swimlane):
    rows = swimlane.totals(TileWindow.of(44e6, 84e6, 1))
    pack = next(row for row in rows if (row["rank"], row["lane"]) == (0, "pack"))
    assert pack["busy_ms"] == pytest.approx(1.5)
    assert pack["percent"] == pytest.approx(100 * 1.5 / 40)
    assert pack["slices"] == 3


def test_find_goes_from_one_operation_to_the_next_and_round(swimlane):
    first = swimlane.find("LAYER3.w", 0)
    second = swimlane.find("LAYER3.w", 1)
    assert first["name"] == "model.layer3.weight"
    assert second["begin_ns"] >= first["begin_ns"]
    assert (second["number"], second["count"]) == (1, 12)
    assert swimlane.find("layer3.w", 12) == first
    assert swimlane.find("layer3.w", -1)["number"] == 11
    assert swimlane.find("no such", 0) is None


@pytest.mark.parametrize(
    ("kind", "key", "said"),
    [
        ("BUCKET", "closed because", "cycle"),
        ("BUCKET", "4 tensors", "model.layer0.weight"),
        ("NEGOTIATE", "response cache", "hit"),
        ("BUCKET", "lasts", "3.400000 ms"),
        ("BUCKET", "bytes", "400,000 (391 KiB)"),
        ("PACK", "lasts", "500.000 us"),
        ("NEGOTIATE", "begins", "13.100911 ms after"),
        ("NEGOTIATE", "announced last", "rank 1, 913.143 us later"),
    ],
)
def test_a_slice_is_described_in_words(swimlane, kind, key, said):
    row = int(np.flatnonzero(swimlane.trace.events["kind"] == kind)[0])
    assert said in dict(swimlane.describe(row)["lines"])[key]


def test_a_slice_that_is_not_there_has_no_description(swimlane):
    with pytest.raises(IndexError):
        swimlane.describe(len(swimlane.trace.events))


def test_a_window_is_never_narrower_than_its_pixels():
    assert np.diff(TileWindow.of(100, 101, 50).edges_ns).min() >= 1
    assert TileWindow.of(200, 100, 10).first_ns == 100


def test_slices_without_a_name_are_called_after_their_own_kind():
    recording = Recording()
    for begin, kind in enumerate(("BLOCKED", "PACK", "UNPACK")):
        recording.add(0, kind, (10 * begin, 10 * begin + 5))
    tile = decode(Swimlane.of(recording.trace(1)).tile(TileWindow.of(0, 30_000, 100)))
    named = {tile["labels"][lane][1]: tile["names"][name]
             for lane, name in zip(tile["lane"], tile["name"], strict=True)}  # fmt: skip
    assert named == {"wait": "BLOCKED", "pack": "PACK", "unpack": "UNPACK"}
