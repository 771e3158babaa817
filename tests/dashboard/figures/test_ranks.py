import numpy as np
import pandas as pd
import pytest

from hvdtune.dashboard.figures.ranks import by_host, edges_of, lateness_figure, waits_figure
from hvdtune.dashboard.figures.theme import LIGHT

HOSTS = {0: "a", 1: "<b>", 2: "a", 3: "<b>"}


@pytest.mark.parametrize(
    ("ranks", "hosts", "order", "edges"),
    [
        pytest.param([3, 2, 1, 0], HOSTS, [0, 2, 1, 3], [1.5], id="all"),
        pytest.param([2, 1], HOSTS, [1, 2], [0.5], id="some"),
        pytest.param([4, 1, 0], {1: "a"}, [0, 4, 1], [1.5], id="of unknown hosts"),
    ],
)
def test_ranks_of_one_host_lie_together_in_the_order_of_their_first(ranks, hosts, order, edges):
    assert by_host(ranks, hosts) == order
    assert edges_of(order, hosts) == edges


TITLES = ["a: rank 0", "a: rank 2", "&lt;b&gt;: rank 1", "&lt;b&gt;: rank 3"]
ONE_HOST = dict.fromkeys(range(4), "a")


@pytest.mark.parametrize(
    ("hosts", "labels", "late", "edges"),
    [
        pytest.param(HOSTS, TITLES, [0, 2, 1, 3], [1.5], id="two hosts"),
        pytest.param(
            ONE_HOST, [f"rank {n}" for n in range(4)], [0, 1, 2, 3], [], id="one host goes unsaid"
        ),
    ],
)
def test_lateness_is_drawn_by_host_with_a_line_between_them(hosts, labels, late, edges):
    own = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=[0, 1, 2, 3], index=[7])
    figure = lateness_figure(own, hosts, LIGHT)
    assert list(figure.data[0].y) == labels
    assert figure.data[0].z[:, 0].tolist() == late
    assert [shape.y0 for shape in figure.layout.shapes] == edges


def test_who_waits_is_drawn_by_host_on_both_axes():
    waits = pd.DataFrame(np.arange(16.0).reshape(4, 4))
    figure = waits_figure(waits, HOSTS, LIGHT)
    assert figure.data[0].z[0].tolist() == [0.0, 2.0, 1.0, 3.0]
    assert figure.data[0].z[:, 0].tolist() == [0.0, 8.0, 4.0, 12.0]
    assert len(figure.layout.shapes) == 2
