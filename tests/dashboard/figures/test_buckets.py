import pytest

from hvdtune.dashboard.figures.buckets import bucket_sizes_figure, cycles_figure
from hvdtune.dashboard.figures.theme import LIGHT
from hvdtune.timeline.analysis.metrics import bandwidth, cycles, fusion
from tests.kit.synthetic import Recorder


def of_small_buckets():
    """Events of ten steps, each with a cycle of 9 tensors in one bucket of 130 KiB."""
    record = Recorder()
    for step in range(10):
        at = 10.0 * step
        record.add(0, "STEP", at, at + 10, seq=step)
        record.add(0, "CYCLE", at + 1, at + 1, seq=step, bucket=133_120, arg=9)
        record.add(0, "ALLREDUCE", at + 2, at + 4, "x", seq=step, bucket=step, arg=133_120)
        why = "nothing else was ready"
        record.add(0, "BUCKET", at + 2, at + 4, why, seq=9, bucket=step, arg=133_120)
        record.add(1, "STEP", at, at + 10, seq=step)
    return record.trace(2).events


def test_cycles_that_are_alike_have_an_axis_from_zero_in_kib():
    figure = cycles_figure(of_small_buckets(), 1.0, LIGHT)
    assert set(figure.data[0].x) == {130.0}
    assert figure.layout.xaxis.rangemode == "tozero"
    assert "KiB" in figure.layout.xaxis.title.text


def test_buckets_are_counted_by_sizes_with_units():
    assert list(bucket_sizes_figure(of_small_buckets(), None, LIGHT).data[0].x) == ["128 KiB"]


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (fusion, "10 buckets; 100 % were closed because nothing else was ready, with 9 tensors "),
        (fusion, " and 130 KiB (median)"),
        (cycles, "The median step has 1 cycle of 9 tensors and 130 KiB."),
        (bandwidth, " of 128 KiB and more"),
    ],
)
def test_sentences_give_sizes_and_counts_as_people_do(metric, said):
    assert said in metric.sentence(metric.table(of_small_buckets()))
