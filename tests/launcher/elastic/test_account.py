"""What an elastic job's changes of ranks have cost."""

import pytest

from hvdtune.launcher.elastic.account import Account


def trained(account, *rows):
    for now_s, samples in rows:
        account.note_progress(now_s, samples, samples // 10, is_commit=True)


@pytest.fixture
def account():
    """100 samples per second, for 10 s before a reset of 10 s and for 10 s after it."""
    account = Account()
    account.note_forming(0.0)
    account.note_formed(1.0)
    account.note_progress(2.0, 0, 0, is_commit=False)
    trained(account, (10.0, 100), (15.0, 600), (20.0, 1100))
    account.note_gathering(21.0)
    account.note_forming(23.0)
    account.note_formed(26.0)
    account.note_progress(29.0, 1100, 110, is_commit=False)
    trained(account, (30.0, 1200), (40.0, 2200))
    return account


def test_a_reset_is_divided_into_its_phases(account):
    phases = {"detection": 1, "agreement": 2, "mesh": 3, "state": 3, "first step": 1}
    assert account.phases_s == phases
    assert account.resets == 1


def test_goodput_is_the_rate_over_that_between_resets(account):
    kind, done, spent_s, share = account.goodput()
    assert (kind, done, spent_s) == ("samples", 2100, 30.0)
    assert share == pytest.approx(70 / 100)


def test_it_is_told_in_two_sentences(account):
    assert account.sentences() == [
        "1 reset cost 10 s: detection 1.00 s, agreement 2.00 s, mesh 3.00 s, state 3.00 s, "
        "first step 1.00 s",
        "2,100 samples in 30 s, 70 per second; between the resets 100 per second: goodput 70.0%",
    ]


def test_commits_are_counted_where_no_samples_are_told():
    account = Account()
    for now_s in range(5):
        account.note_progress(now_s, 0, now_s, is_commit=True)
    assert account.goodput() == ("commits", 4, 4.0, 1.0)
    assert account.sentences() == []


def test_a_reset_that_fails_to_form_and_forms_again_is_one():
    account = Account()
    trained(account, (0.0, 0), (1.0, 100))
    for now_s in (2.0, 4.0):
        account.note_gathering(now_s)
        account.note_forming(now_s + 1)
    account.note_formed(6.0)
    trained(account, (7.0, 200))
    assert account.resets == 1
    assert sum(account.phases_s.values()) == 6.0


@pytest.mark.parametrize("samples", [700, 2000])
def test_goodput_is_at_most_100_percent(samples):
    """A slow beginning, then a reset of 3 s in which this many samples are first reported."""
    account = Account()
    trained(account, (0.0, 0), (10.0, 100), (12.0, 200))
    account.note_gathering(13.0)
    account.note_forming(13.5)
    account.note_formed(14.0)
    trained(account, (15.0, samples), (20.0, samples + 200))
    kind, done, spent_s, share = account.goodput()
    assert (kind, done, spent_s) == ("samples", samples + 200, 20.0)
    assert share == 1.0
    assert account.sentences()[1].endswith("between the resets 23.53 per second: goodput 100.0%")
