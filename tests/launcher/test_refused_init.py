"""A refused `init` leaves the process in no job, and a corrected one forms it."""

import pytest

import hvdtune
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.process_sets import ProcessSet
from hvdtune.errors import MismatchError, UsageError

GOOD = [[0, 1], [1, 2]]
# The ranks of the sets that each rank is given first, and what each is told.
CASES = {
    "no such rank": ([[[0, 7]]] * 3, ["rank 7 of [0, 7] does not exist in a job of 3 ranks"] * 3),
    "twice": ([[[0, 1], [1, 0]]] * 3, ["the ranks [0, 1] appear twice"] * 3),
    "all ranks": ([[[2, 1, 0]]] * 3, ["the ranks [0, 1, 2] are all ranks"] * 3),
    "no sets": ([[None]] * 3, ["is not a list of hvd.ProcessSet"] * 3),
    "one rank's cannot be": (
        [GOOD, [[0, 7]], GOOD],
        ["", "rank 7 of [0, 7] does not exist", ""],
    ),
    "one rank's differ": (
        [GOOD, GOOD, [[0, 1]]],
        [
            "[[0, 1], [1, 2]] on rank 0, [[0, 1]] on rank 2. Pass the same sets in the same order",
            "[[0, 1], [1, 2]] on rank 1, [[0, 1]] on rank 2. Pass the same sets in the same order",
            "[[0, 1]] on rank 2, [[0, 1], [1, 2]] on rank 0. Pass the same sets in the same order",
        ],
    ),
}


def init_with(given):
    """The process sets and what was said; with an error this process is in no job."""
    sets = [each and ProcessSet(each) for each in given]
    try:
        runtime.init(process_sets=sets)
    except (UsageError, MismatchError) as error:
        assert not runtime.is_initialized()
        assert all(each is None or each.process_set_id is None for each in sets)
        with pytest.raises(ValueError, match="has not been initialized"):
            runtime.size()
        return sets, str(error)
    return sets, ""


def init_wrongly_then_well(rank_of):
    told = []
    for first, _ in CASES.values():
        sets, said = init_with(first[rank_of()])
        if said:
            sets, again = init_with(GOOD)
            assert again == ""
        numbers = [each.process_set_id for each in sets]
        for each in sets:
            if each.included():
                barrier(each)
        barrier()  # a rank that has left would end the others' barriers
        told.append((said, numbers))
        runtime.shutdown()
    return told


def own_rank():
    import os

    return int(os.environ["HOROVOD_RANK"])


def test_a_corrected_init_forms_the_job_that_a_wrong_one_did_not():
    told = hvdtune.run(init_wrongly_then_well, (own_rank,), num_proc=3)
    for rank, rows in enumerate(told):
        for (said, numbers), (_, wanted) in zip(rows, CASES.values(), strict=True):
            assert wanted[rank] in said and bool(said) == bool(wanted[rank])
            assert numbers == [1, 2]
