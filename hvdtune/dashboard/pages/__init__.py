"""One page per file: PATH, TITLE and `layout(run, place)`; callbacks, if any, in `register`."""

from collections.abc import Mapping
from types import ModuleType

from hvdtune.dashboard.pages import (
    compare,
    definitions,
    fusion,
    live,
    membership,
    overview,
    query,
    ranks,
    study,
    tensors,
    timeline,
)

PAGES: Mapping[str, ModuleType] = {
    page.PATH: page
    for page in (
        overview,
        timeline,
        tensors,
        ranks,
        fusion,
        study,
        compare,
        membership,
        live,
        query,
        definitions,
    )
}

__all__ = ["PAGES"]
