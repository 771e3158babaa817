"""What a study uses in place of the default while it searches: from its pairs, and in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.storage.pair_log import Pair

SEARCH_PHASES = ("search", "race")


@dataclass(frozen=True)
class InUse:
    """A setting that is used while others are searched; what it is taken to gain over the default
    is a log ratio."""

    setting: Setting
    log_ratio: float = 0.0

    def text(self, default: Setting) -> str:
        """For people, to stand after "in use"."""
        gain = f"{to_percent(self.log_ratio):+.1f} %"
        return (
            f"{describe(self.setting, default)}, {gain}, not yet proved; trials are compared with "
            "it"
        )


def in_use_last(pairs: Sequence[Pair]) -> InUse | None:
    """What a tuner had in use when it measured its last pair of the search, None: the default."""
    for pair in reversed(pairs):
        if not pair.by and pair.phase in SEARCH_PHASES:
            last = InUse(dict(pair.reference), pair.reference_log_ratio)
            return last if last.log_ratio else None
    return None
