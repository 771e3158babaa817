"""Which gradients are sparse, agreed on by all ranks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from hvdtune.core.gradients.plan import Gradient
from hvdtune.core.rank import handles
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.core.rank.in_flight import Batch, abandon
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, id_of
from hvdtune.errors import HvdtuneError

P = TypeVar("P", bound=Hashable)

UNKNOWN: Final = 0
DENSE: Final = 255


class SparsityTable(Generic[P]):
    """Which gradients are sparse: settled by all ranks, as soon as one of them has a gradient.

    A layout is DENSE, or how many dimensions of a sparse gradient are indexed; where ranks differ
    the largest counts, so that dense wins. What no rank has had a gradient of is UNKNOWN and asked
    about again at the next step. A rank that has no gradient thus knows what the others send.

    """

    def __init__(self, process_set: ProcessSet) -> None:
        # The question to all ranks, of whom, and codes. It is here before it is submitted, so that
        # a signal handler may raise at any point of that.
        self._asked: tuple[Batch, list[P], array[int]] | None = None
        self._process_set = process_set
        self._layouts: dict[P, int] = {}
        self._names: dict[P, str] = {}
        self._unknown: list[P] = []
        self._unused: frozenset[P] = frozenset()
        self._settled_in = self._now()

    def __del__(self) -> None:
        if self._asked is not None:
            abandon([self._asked[0]])

    def is_known(self, parameter: P) -> bool:
        """Return whether its layout has been settled, so that its gradient may travel."""
        return not self._unknown or self._layouts[parameter] != UNKNOWN

    def is_unused(self, parameter: P) -> bool:
        """Return whether no rank has had a gradient of it yet, as of the last question."""
        return parameter in self._unused

    def add(self, gradients: Iterable[Gradient[P]]) -> None:
        """Every rank must add the same ones, between the same steps."""
        for gradient in gradients:
            self._layouts[gradient.parameter] = UNKNOWN
            self._names[gradient.parameter] = gradient.name
            self._unknown.append(gradient.parameter)

    def begin_step(self) -> None:
        """Forgets layouts from before a join, which a rank without data has missed, and from an
        earlier generation, which new ranks have missed."""
        settled_in = self._now()
        if settled_in != self._settled_in:
            self._settled_in = settled_in
            self._layouts = dict.fromkeys(self._layouts, UNKNOWN)
            self._unknown = list(self._layouts)
            self._unused = frozenset()

    def settle(self, layout_of: Callable[[P], int]) -> dict[P, int]:
        """Asks all ranks about unknown layouts; returns those that are known from now on.

        When a signal handler raises before this returns, call it again.

        Args:
            layout_of: of the gradient that a parameter has on this rank, UNKNOWN for none.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        if not self._unknown:
            return {}
        if self._asked is None:
            self._asked = self._question(layout_of)
        question, asked, codes = self._asked
        try:
            question.submit(PROCESS.native())
            question.finish()
        except HvdtuneError:
            self._asked = None
            raise
        settled = {p: code for p, code in zip(asked, codes, strict=True) if code != UNKNOWN}
        self._layouts.update(settled)
        self._unknown = [p for p in self._unknown if p not in settled]
        self._unused = frozenset(self._unknown)
        self._asked = None
        return settled

    def _now(self) -> tuple[int, int]:
        """The generation, and how many joins there were in it."""
        return PROCESS.generation, handles.joins(id_of(self._process_set))

    def _question(self, layout_of: Callable[[P], int]) -> tuple[Batch, list[P], array[int]]:
        asked = list(self._unknown)
        codes = array("B", [layout_of(parameter) for parameter in asked])
        name = f"layouts.{self._names[asked[0]]}"
        largest = Reduction(ReduceOp.MAX)
        request = allreduce_request(name, [("uint8", [len(codes)])], largest, self._process_set)
        address, _ = codes.buffer_info()
        question = Batch()
        question.add(request, [address], [address], [codes])
        return question, asked, codes
