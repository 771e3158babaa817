"""How many announcements were answered from the response cache."""

import pandas as pd

TITLE = "Response cache"


def table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per rank.

    Args:
        events: see `schema.Trace`.

    Returns:
        Columns rank, announcements, cached_percent, again (announcements of a name that this rank
        had announced before), again_cached_percent (of those).
    """
    rows = events[events["kind"] == "NEGOTIATE"]
    hit = (rows["arg"] % 2).astype(bool)
    again = rows.duplicated(["rank", "name"])
    frame = pd.DataFrame({"rank": rows["rank"], "hit": hit, "again": again, "both": hit & again})
    by = frame.groupby("rank").agg(
        announcements=("hit", "size"),
        hits=("hit", "sum"),
        again=("again", "sum"),
        both=("both", "sum"),
    )
    by["cached_percent"] = 100 * by["hits"] / by["announcements"]
    by["again_cached_percent"] = (100 * by["both"] / by["again"]).where(by["again"] > 0)
    return by.reset_index()[
        ["rank", "announcements", "cached_percent", "again", "again_cached_percent"]
    ]


def sentence(table: pd.DataFrame) -> str:
    """Say how often announcements of all ranks hit the cache."""
    total = float(table["announcements"].sum())
    if not total:
        return "Nothing was announced."
    share = float((table["cached_percent"] * table["announcements"]).sum()) / total
    again = 100 * float(table["again"].sum()) / total
    return f"{share:.0f} % of announcements hit the cache; {again:.0f} % repeat an earlier name."
