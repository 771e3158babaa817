import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.core.gradients import backward_passes
from hvdtune.core.gradients.backward_passes import BackwardPassCounter, PassAgreement
from hvdtune.core.gradients.groups import split
from hvdtune.core.gradients.keras_variables import distinct, layer_and_own, without_counters
from hvdtune.core.gradients.options import check_names
from hvdtune.core.gradients.plan import FLAT_BUFFER_BYTES, SMALL_BYTES, Gradient, arrange
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import global_process_set
from hvdtune.errors import UsageError
from tests.parallel.ranks import run


def gradients(sizes, dtype="float32", packable=True):
    return [
        Gradient(index, f"p{index}", dtype, nbytes // 4, nbytes, packable)
        for index, nbytes in enumerate(sizes)
    ]


@given(
    st.lists(st.sampled_from([0, 4, 1024, SMALL_BYTES - 4, SMALL_BYTES, 1 << 20]), max_size=60),
    st.sampled_from([0, 1, 2, 3]),
)
def test_every_gradient_travels_once_large_ones_alone(sizes, odd):
    rows = gradients(sizes)
    rows[:odd] = gradients(sizes[:odd], "float64")
    plan = arrange(rows)
    packed = [member for pack in plan.flat_buffers for member in pack.members]
    alone = [row for (row,) in plan.groups]
    assert sorted(row.parameter for row in (*alone, *packed)) == list(range(len(sizes)))
    assert all(member.nbytes < SMALL_BYTES for member in packed)
    for pack in plan.flat_buffers:
        assert len({member.dtype for member in pack.members}) == 1
        assert len(pack.members) > 1
        assert pack.count == sum(member.count for member in pack.members)


def test_packs_are_bounded_and_have_names_of_their_own():
    each = SMALL_BYTES - 4
    plan = arrange(gradients([each] * (3 * FLAT_BUFFER_BYTES // each)))
    assert len(plan.flat_buffers) >= 3
    assert all(pack.count * 4 <= FLAT_BUFFER_BYTES for pack in plan.flat_buffers)
    assert len({pack.name for pack in plan.flat_buffers}) == len(plan.flat_buffers)


def test_what_cannot_be_packed_travels_alone():
    plan = arrange(gradients([4] * 5, packable=False))
    assert [len(group) for group in plan.groups] == [1] * 5
    assert plan.flat_buffers == ()


@given(st.lists(st.sampled_from([4, SMALL_BYTES]), min_size=1, max_size=30), st.integers(1, 40))
def test_groups_are_kept_as_given_and_the_rest_travels_as_without(sizes, parts):
    rows = gradients(sizes)
    groups = split(rows[: len(rows) // 2], parts)
    plan = arrange(rows, groups)
    wanted = [tuple(group) for group in groups if group]
    assert list(plan.groups[: len(wanted)]) == wanted
    rest = arrange(rows[len(rows) // 2 :])
    assert (plan.groups[len(wanted) :], plan.flat_buffers) == (rest.groups, rest.flat_buffers)


@pytest.mark.parametrize(
    ("items", "parts", "groups"),
    [("abcdefg", 3, ["abc", "de", "fg"]), ("ab", 3, ["a", "b", ""])],
)
def test_a_split_is_in_order_and_as_even_as_can_be(items, parts, groups):
    assert split(items, parts) == groups


def test_a_gradient_is_due_after_its_passes_and_counts_begin_again_with_the_next_step():
    book = BackwardPassCounter(passes_per_step=2)
    assert [book.add("w"), book.is_due("w"), book.all_due()] == [1, False, False]
    assert book.add_all(["w", "b"]) is None
    assert [book.is_due("w"), book.is_due("b"), book.all_due()] == [True, False, False]
    assert book.add_all(["b", "w"]) == "w"
    assert book.all_due()
    book.end_step()
    assert not book.is_due("w")
    assert book.add("w") == 1


def test_a_gradient_that_is_computed_twice_in_one_pass_has_too_many():
    book = BackwardPassCounter(passes_per_step=1)
    assert book.add_all(["a", "b"]) is None
    assert book.add_all(["c", "c"]) == "c"
    assert BackwardPassCounter(passes_per_step=2).add_all(["a", "a"]) is None


def decide_and_ask_at_once():
    """Another thread calls a collective while this rank's pass ends. Returns how many asked."""
    asked, second = [], threading.Event()
    make = backward_passes.allreduce_request

    def slow(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            second.wait(0.3)  # for a second question, of which there must be none
        else:
            second.set()
        return make(*arguments)

    backward_passes.allreduce_request = slow
    agreement = PassAgreement(global_process_set)
    agreement.postpone("complete.w")
    other = threading.Thread(target=agreement.decide)
    other.start()
    while not asked:
        time.sleep(0.001)
    agreement.ask("complete.w", is_complete=True)
    other.join()
    answer = agreement.answer()
    agreement.drop()
    return len(asked), answer, len(PROCESS.undecided), len(PROCESS.in_flight)


def test_a_rank_gives_its_part_of_an_agreement_once_whichever_thread_asks():
    assert run(decide_and_ask_at_once, 1) == [(1, False, 0, 0)]


@pytest.mark.parametrize(
    ("names", "fault"),
    [("aa", "more than once: a"), ("a", "1 name for 2 parameters")],
    ids=["twice", "too-few"],
)
def test_names_must_be_there_and_unique(names, fault):
    check_names([("a", 1), ("b", 2)], 2)
    with pytest.raises(UsageError, match=fault):
        check_names([(name, number) for number, name in enumerate(names)], 2)


@pytest.mark.parametrize(
    ("new", "loaded", "name"),
    [
        ("sequential_1/conv2d_3/kernel", "conv2d/kernel", "conv2d/kernel"),
        ("sequential_1/dense_5/kernel", "dense/kernel", "dense/kernel"),
        ("sequential_1/dense_6/bias", "dense_1/bias", "dense/bias"),
    ],
)
def test_a_new_model_and_a_loaded_one_call_their_variables_the_same(new, loaded, name):
    assert layer_and_own(new) == layer_and_own(loaded) == name


def test_names_without_counters_stay_distinct():
    assert without_counters("block1_conv2/kernel_1") == "block1_conv2/kernel"
    assert distinct([without_counters(name) for name in ("a_1/w", "a_2/w")]) == ["a/w", "a/w.1"]
