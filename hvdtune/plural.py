"""Counts with their nouns, for messages."""


def counted(count: int, noun: str) -> str:
    """The count and the noun after it: "1 rank", "2,000 ranks".

    Args:
        count: how many.
        noun: what one of them is called; several have -s, or -es after a sibilant.
    """
    if count == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s"
    return f"{count:,} {noun}{ending}"
