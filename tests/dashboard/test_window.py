import pytest

from hvdtune.dashboard.data import describe_run
from hvdtune.dashboard.window import View, draw_window, format_bytes

from .synthetic import Recording, training_trace


@pytest.fixture(scope="module")
def run():
    return describe_run("run", training_trace(steps=4))


def test_each_tensor_has_a_row_per_rank_below_steps_and_buckets(run):
    drawing = draw_window(run, View(window=2))
    assert drawing.rows[:4] == ["steps  r0", "steps  r1", "buckets  r0", "buckets  r1"]
    assert drawing.rows[4:6] == ["model.layer0.weight  r0", "model.layer0.weight  r1"]
    assert len(drawing.rows) == 4 + 12 * 2


def test_every_phase_of_a_step_is_drawn_and_the_note_says_so(run):
    drawing = draw_window(run, View(window=2))
    assert set(drawing.bars["phase"]) == {
        "STEP", "BUCKET", "NEGOTIATE", "QUEUE", "COMMUNICATE", "PACK", "REDUCE", "EXCHANGE",
        "UNPACK",
    }  # fmt: skip
    assert drawing.note.startswith("Step 1: 111 events of 12 tensors on 2 ranks")
    assert "all of them are drawn" in drawing.note


def test_a_tensor_row_repeats_the_phases_of_its_bucket(run):
    drawing = draw_window(run, View(window=2, tensors=("model.layer3.weight",), ranks=(1,)))
    row = drawing.rows.index("model.layer3.weight  r1")
    phases = list(drawing.bars.loc[drawing.bars["row"] == row, "phase"])
    assert phases == ["NEGOTIATE", "QUEUE", "COMMUNICATE", "PACK", "REDUCE", "EXCHANGE", "UNPACK"]


def test_filters_keep_only_the_chosen_tensor_and_rank(run):
    drawing = draw_window(run, View(window=2, tensors=("model.layer3.weight",), ranks=(1,)))
    assert drawing.rows == ["steps  r1", "buckets  r1", "model.layer3.weight  r1"]
    assert "1 tensor on 1 rank" in drawing.note


def test_each_rank_has_an_announcement_and_the_hover_names_the_late_one(run):
    drawing = draw_window(run, View(window=2, tensors=("model.layer3.weight",)))
    ticks = drawing.ticks[drawing.ticks["kind"].isin(["announced", "last"])]
    assert len(ticks) == 2
    assert (ticks["kind"] == "last").sum() == 1
    assert (
        ticks["detail"].str.fullmatch(r"rank \d announced last, \d\.\d{3} ms after the first").all()
    )


def test_several_steps_are_marked(run):
    drawing = draw_window(run, View(window=1, count=3))
    assert [label for _, label in drawing.marks] == ["step 0", "step 1", "step 2"]


def test_no_more_than_five_windows_are_drawn(run):
    assert len(draw_window(run, View(window=0, count=500)).marks) == 5


def test_an_adopted_setting_is_a_tick_on_the_step_row(run):
    ticks = draw_window(run, View(window=2)).ticks
    setting = ticks[ticks["kind"] == "setting"].iloc[0]
    assert setting["row"] == 0
    assert setting["detail"] == '{"cycle_time_ms": 0.5}'


def test_windows_before_and_after_the_trace_are_its_first_and_last(run):
    assert draw_window(run, View(window=-5)).marks[0][1] == "before the first step"
    assert draw_window(run, View(window=99)).marks[0][1] == "step 3"


def test_a_crowded_window_draws_bucket_phases_once_and_says_how_many_it_left_out(run):
    drawing = draw_window(run, View(window=2), max_bars=120)
    assert len(drawing.bars) <= 120
    assert "would take 96 more bars" in drawing.note
    assert set(drawing.bars["phase"]) > {"PACK", "REDUCE"}


def test_too_many_tensors_are_paged_and_no_page_is_over_the_limit(run):
    pages = draw_window(run, View(window=2), max_bars=60).pages
    seen = set()
    for page in range(pages):
        drawing = draw_window(run, View(window=2, page=page), max_bars=60)
        assert len(drawing.bars) <= 60
        assert f"Page {page + 1} of {pages}" in drawing.note
        seen |= set(drawing.rows[4:])
    assert pages > 1
    assert len(seen) == 24


def test_the_shortest_inner_phases_are_left_out_first_and_counted():
    recording = Recording()
    recording.add(0, "STEP", (0, 10_000), seq=0)
    recording.add(0, "ALLREDUCE", (0, 9_000), name="t", seq=1, bucket=1, arg=8)
    for number in range(100):
        length = 2.0 if number < 70 else 40.0
        recording.add(0, "REDUCE", (number * 90.0, number * 90.0 + length), bucket=1, arg=8)
    drawing = draw_window(describe_run("run", recording.trace(1)), View(), max_bars=60)
    assert len(drawing.bars) <= 60
    assert "The 85 shortest phases inside buckets, none longer than 40.0 us, are left out" in (
        drawing.note
    )


def test_without_fusion_buckets_and_cycles_stay_within_the_limit_too():
    recording = Recording()
    recording.add(0, "STEP", (0, 50_000), seq=0)
    for number in range(400):
        at = number * 100.0
        recording.add(0, "BUCKET", (at, at + 50), bucket=number, arg=8)
        recording.add(0, "ALLREDUCE", (at, at + 50), name=f"t{number}", seq=number, bucket=number)
        recording.add(0, "CYCLE", (at, at), seq=number, arg=1)
    drawing = draw_window(describe_run("run", recording.trace(1)), View(), max_bars=200)
    assert len(drawing.bars) <= 200
    assert len(drawing.ticks) == 50
    assert "The 351 shortest buckets" in drawing.note
    assert "Of 400 cycle marks 1 in 8 is drawn" in drawing.note


def test_one_tensor_with_more_spans_than_fit_is_cut_and_counted():
    recording = Recording()
    recording.add(0, "STEP", (0, 50_000), seq=0)
    for number in range(300):
        recording.add(0, "ALLREDUCE", (number * 100.0, number * 100.0 + 50), name="t", seq=number)
    drawing = draw_window(describe_run("run", recording.trace(1)), View(), max_bars=100)
    assert len(drawing.bars) == 100
    assert "The 201 shortest spans of this tensor" in drawing.note


def test_an_empty_trace_draws_nothing_and_says_so():
    drawing = draw_window(describe_run("run", Recording().trace(1)), View())
    assert drawing.rows == []
    assert drawing.note == "This trace holds no events."


@pytest.mark.parametrize(
    ("size", "text"),
    [(17, "17 B"), (2048, "2.0 KiB"), (3 * 2**20, "3.0 MiB"), (5 * 2**30, "5.00 GiB")],
)
def test_sizes_are_written_in_a_readable_unit(size, text):
    assert format_bytes(size) == text
