"""The meeting of ranks on a board, whatever the board is."""

import contextlib
import threading

import pytest

from hvdtune.core.job.rendezvous import Board, Offer, Opening, meet, withdrawal
from hvdtune.errors import RendezvousError
from tests.kit.configs import make_config


class Slate(Board):
    """A board in memory."""

    def __init__(self, bind_host="127.0.0.1"):
        self._bind_host = bind_host
        self._written = threading.Event()
        self.text = ""

    def opening(self):
        return Opening(self._bind_host)

    def posted(self, offer):
        self.withdraw("", offer.to_json())
        return contextlib.nullcontext()

    def withdraw(self, why, text=""):
        self.text = text or withdrawal(why)
        self._written.set()

    def await_offer(self, timeout_s):
        assert self._written.wait(timeout_s)
        return Offer.from_json(self.text)


def config(rank, start_s=10.0):
    return make_config(rank=rank, size=2, start_s=start_s)


def test_an_offer_reaches_the_other_ranks_with_its_key():
    board, found = Slate(), []

    def start(met):
        where = met.rendezvous
        found.append((where.address, where.port, where.key))
        if met.place.rank == 0:
            meet(config(1), board, start)
            raise RendezvousError("enough")

    with pytest.raises(RendezvousError, match="enough"):
        meet(config(0), board, start)
    assert found[0] == found[1] and len(found[0][2]) == 32
    assert found[0][2].hex() not in repr(Offer.from_json(board.text))


def test_ranks_do_not_wait_for_a_rank_0_that_cannot_listen():
    board = Slate("192.0.2.1")
    with pytest.raises(RendezvousError, match=r"cannot listen on 192\.0\.2\.1") as error:
        meet(config(0), board, pytest.fail)
    with pytest.raises(RendezvousError, match="Rank 0 could not open a rendezvous: ") as reported:
        meet(config(1, 3600.0), board, pytest.fail)
    assert str(error.value) in str(reported.value)
