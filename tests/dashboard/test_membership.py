"""The page of an elastic job's membership, from what its launcher writes."""

import json

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.figures.membership import membership_figure, resets_figure
from hvdtune.dashboard.figures.theme import LIGHT
from hvdtune.dashboard.membership import PHASES, open_membership
from hvdtune.dashboard.pages import membership
from hvdtune.dashboard.shell import PageAddress
from hvdtune.launcher.elastic import account
from hvdtune.launcher.elastic.account import Account
from hvdtune.launcher.elastic.history import FILE_NAME, History, document
from hvdtune.launcher.elastic.slots import SlotName

HOSTILE = "<b>node</b>"


@pytest.fixture
def folder(tmp_path):
    """Worker 1 of two is lost after 4 s; the reset takes from the commit at 3 s to that at 9 s."""
    history, costs = History(), Account()
    slots = [(0, SlotName("node-0", 0)), (1, SlotName(HOSTILE, 0))]
    history.note_formed(0, slots, 1.0)
    for now_s, samples in ((2.0, 0), (3.0, 100)):
        costs.note_progress(now_s, samples, samples // 10, is_commit=True)
    history.note_exit(1, 4.0)
    history.note_ended(5.0)
    costs.note_gathering(5.0)
    costs.note_forming(6.0)
    costs.note_formed(7.0)
    history.note_formed(1, slots[:1], 7.0)
    costs.note_progress(8.0, 100, 10, is_commit=False)
    for now_s, samples in ((9.0, 200), (10.0, 300)):
        costs.note_progress(now_s, samples, samples // 10, is_commit=True)
    (tmp_path / FILE_NAME).write_text(json.dumps(document(history, costs, 10.5)))
    return tmp_path


def texts(component):
    children = getattr(component, "children", component)
    if isinstance(children, list | tuple):
        return [text for child in children for text in texts(child)]
    return [children] if isinstance(children, str) else texts(children) if children else []


def test_it_knows_who_was_there_when_and_what_the_reset_cost(folder):
    found = open_membership(folder)
    stays = found.stays[["worker", "generation", "rank", "began_s", "ended_s"]].to_numpy().tolist()
    assert stays == [[0, 0, 0, 1.0, 5.0], [1, 0, 1, 1.0, 4.0], [0, 1, 0, 7.0, 10.5]]
    (reset,) = found.resets.to_dict("records")
    spent = {"detection": 2, "agreement": 1, "mesh": 1, "state": 1, "first step": 1}
    assert reset == {"began_s": 3.0, "total_s": 6.0, **spent}
    assert PHASES == account.PHASES


def test_the_page_and_its_figures_show_it(folder):
    run = open_run(folder)
    said = " ".join(texts(membership.layout(run, PageAddress(0, {}))))
    assert "1 reset cost 6.00 s" in said and "goodput" in said
    drawn = membership_figure(run.membership.stays, run.membership.resets, LIGHT)
    assert "generation 1" in drawn.data[0].customdata[2]
    assert HOSTILE not in drawn.to_json()
    assert [shape.x0 for shape in drawn.layout.shapes] == [3.0]
    assert [bar.name for bar in resets_figure(run.membership.resets, PHASES, LIGHT).data] == [
        *PHASES
    ]


def test_the_file_is_a_trace_with_a_lane_for_each_worker_and_for_resets(folder):
    slices = open_run(folder).trace.others.rows
    assert sorted(slices["name"]) == sorted(
        [*PHASES, *(f"generation 0: rank {r} of 2" for r in (0, 1)), "generation 1: rank 0 of 1"]
    )


def test_a_job_of_fixed_size_has_a_page_that_says_so(tmp_path, folder):
    (folder / FILE_NAME).write_text("{")
    assert open_membership(folder) is None
