"""Python objects between ranks."""

import pytest

from hvdtune.errors import UsageError
from tests.contract.framework import FRAMEWORKS, run


class Unpicklable:
    def __reduce__(self):
        raise ValueError("made of sand")


def exchange(name):
    hvd = FRAMEWORKS[name].hvd
    me = hvd.rank()
    upper = hvd.add_process_set([1, 2])
    mine = {"rank": me, "text": "x" * (1000 * me), "call": lambda value: value + me}
    gathered = hvd.allgather_object(mine, name="everything")
    from_root = hvd.broadcast_object(mine, root_rank=2)
    rows = [
        [row["rank"] for row in gathered],
        [row["call"](10) for row in gathered],
        [len(row["text"]) for row in gathered],
        from_root["call"](0),
        from_root is mine,
        hvd.broadcast_object(None if me else "default root"),
    ]
    if upper.included():
        rows.append(hvd.allgather_object(me, process_set=upper))
        rows.append(hvd.broadcast_object(me, 2, name="upper", process_set=upper))
        with pytest.raises(UsageError, match="root rank 0"):
            hvd.broadcast_object(me, 0, process_set=upper)
    hvd.allgather_object(None)
    return rows


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_objects_of_any_kind_reach_all_ranks(framework):
    for rank, rows in enumerate(run(exchange, 3, framework)):
        assert rows[:4] == [[0, 1, 2], [10, 11, 12], [0, 1000, 2000], 2]
        assert rows[4:6] == [rank == 2, "default root"]
        assert rows[6:] == ([] if rank == 0 else [[1, 2], 2])


def sandy(name):
    hvd = FRAMEWORKS[name].hvd
    said = []
    for call in (
        lambda: hvd.broadcast_object({"loader": [Unpicklable()]}, root_rank=1),
        lambda: hvd.allgather_object(Unpicklable() if hvd.rank() == 1 else "fine"),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        said.append(str(caught.value))
    return said, hvd.allgather_object("still here")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_object_that_cannot_be_pickled_raises_on_every_rank(framework):
    for rank, (said, after) in enumerate(run(sandy, 2, framework)):
        for sentence in said:
            assert "the object of rank 1 cannot be pickled" in sentence
            assert ("made of sand" in sentence) is (rank == 1)
        assert after == ["still here"] * 2
