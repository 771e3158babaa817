import numpy as np
import pandas as pd

from hvdtune.dashboard.figures.ranks import by_host, edges_of, lateness_figure, waits_figure
from hvdtune.dashboard.figures.theme import LIGHT

HOSTS = {0: "a", 1: "<b>", 2: "a", 3: "<b>"}


def test_ranks_of_one_host_lie_together_in_the_order_of_their_first():
    assert by_host([3, 2, 1, 0], HOSTS) == [0, 2, 1, 3]
    assert by_host([2, 1], HOSTS) == [1, 2]
    assert by_host([4, 1, 0], {1: "a"}) == [0, 4, 1]
    assert edges_of([0, 2, 1, 3], HOSTS) == [1.5]


def test_lateness_is_drawn_by_host_with_a_line_between_them():
    own = pd.DataFrame([[1.0, 2.0, 3.0, 4.0]], columns=[0, 1, 2, 3], index=[7])
    figure = lateness_figure(own, HOSTS, LIGHT)
    assert list(figure.data[0].y) == [
        "a: rank 0", "a: rank 2", "&lt;b&gt;: rank 1", "&lt;b&gt;: rank 3"
    ]  # fmt: skip
    assert figure.data[0].z[:, 0].tolist() == [0.0, 2.0, 1.0, 3.0]
    assert [shape.y0 for shape in figure.layout.shapes] == [1.5]


def test_who_waits_is_drawn_by_host_on_both_axes():
    waits = pd.DataFrame(np.arange(16.0).reshape(4, 4))
    figure = waits_figure(waits, HOSTS, LIGHT)
    assert figure.data[0].z[0].tolist() == [0.0, 2.0, 1.0, 3.0]
    assert figure.data[0].z[:, 0].tolist() == [0.0, 8.0, 4.0, 12.0]
    assert len(figure.layout.shapes) == 2


def test_hosts_go_unsaid_where_there_is_one():
    own = pd.DataFrame([[1.0, 2.0]], columns=[0, 1])
    figure = lateness_figure(own, {0: "a", 1: "a"}, LIGHT)
    assert list(figure.data[0].y) == ["rank 0", "rank 1"]
    assert figure.layout.shapes == ()
