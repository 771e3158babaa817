"""Each worker's recordings of all generations are one trace."""

from hvdtune.timeline import open_trace
from tests.kit.programs import call_cli
from tests.launcher.elastic.test_job import ends, train


def gradients(trace):
    events = trace.events
    return events[(events["kind"] == "ALLREDUCE") & (events["name"] == "allreduce.gradient")]


def test_a_worker_has_one_lane_from_its_first_generation_to_its_last(tmp_path):
    options = "-np 3 --min-np 1 -H localhost:3 --timeline-filename t.json.gz -o run"
    done = train(tmp_path, options, 24, 1, "1:3:kill")
    assert ends(done)[0] == "3,3,2,2,2"
    raw = tmp_path / "run" / "ranks" / "launch-0"
    assert sorted(path.name for path in raw.iterdir()) == [
        *["worker-0-job1.hvt", "worker-0.hvt", "worker-1.hvt"],
        *["worker-2-job1.hvt", "worker-2.hvt"],
    ]
    merged, opened = open_trace(tmp_path / "t.json.gz"), open_trace(raw)
    for trace in (merged, opened):
        found = gradients(trace)
        # What the killed one did at last it had not written yet.
        assert set(found["rank"]) <= {0, 1, 2}
        found = found[found["rank"] != 1]
        # An operation of one generation is none of another's, whose numbers begin anew.
        for number in ("seq", "bucket"):
            assert found.groupby(number)["rank"].agg(sorted).to_list() == [[0, 2]] * 5
        assert found.groupby("seq")["begin_ns"].min().is_monotonic_increasing
    assert "2 generations of an elastic job: ranks are numbered by worker" in done.stderr
    assert "1 file not closed (killed or still running): worker 1 in generation 0" in done.stderr
    assert "ALLREDUCE" in call_cli("timeline", "stats", raw, folder=tmp_path)


def test_steps_go_on_counting_in_the_next_generation(tmp_path):
    options = "-np 2 --min-np 1 -H localhost:2 --timeline-filename t.json"
    done = train(tmp_path, options, 16, 1, "steps", "1:4:kill")
    assert ends(done)[0] == "2,2,2,1,1"
    events = open_trace(tmp_path / "t.json").events
    steps = events[(events["kind"] == "STEP") & (events["rank"] == 0)]
    assert steps["seq"].is_unique and steps["begin_ns"].is_monotonic_increasing
    assert len(steps) == 3  # of each generation all but what comes before its first mark
