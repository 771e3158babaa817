import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.timeline.model.interning import PairInterner, raise_to

# Some of the second ones share a place with others of any first.
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 32, 4096, 8192, 2**31 - 1])))


@given(st.lists(PAIRS, max_size=5))
def test_each_pair_has_one_number_in_the_order_of_batches(batches):
    numbering, expected = PairInterner(), {}
    for batch in batches:
        for pair in sorted(set(batch) - set(expected)):
            expected[pair] = len(expected)
        first, second = np.array(batch, np.int32).reshape(-1, 2).T
        assert numbering.of(first, second).tolist() == [expected[pair] for pair in batch]
    firsts, seconds = numbering.pairs()
    assert list(zip(firsts.tolist(), seconds.tolist(), strict=True)) == list(expected)


def test_more_pairs_than_places_all_keep_their_numbers():
    numbering, second = PairInterner(), np.arange(20_000)
    for _ in range(2):
        np.testing.assert_array_equal(numbering.of(np.zeros_like(second), second), second)


def test_values_are_raised_to_the_largest_of_their_number():
    highest = np.array([5, 5, 5])
    raise_to(highest, np.array([0, 2, 2], np.int32), np.array([4, 6, 9]))
    assert highest.tolist() == [5, 5, 9]
