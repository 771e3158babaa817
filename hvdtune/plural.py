"""Counts with their nouns, sizes with their units and sentences with their capital letter."""

_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def counted(count: float, noun: str) -> str:
    """The count and the noun after it: "1 rank", "2,000 ranks", "1.5 tensors".

    Args:
        count: how many; a mean has a decimal where it needs one.
        noun: what one of them is called; several have -s, or -es after a sibilant.
    """
    number = f"{count:,.1f}".removesuffix(".0")
    if number == "1":
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s"
    return f"{number} {noun}{ending}"


def sized(size_bytes: float) -> str:
    """A size in the largest unit of which it is at least one, to three digits.

    As in "16 KiB", "1.5 MiB", "1.51 MiB", "1023 MiB", "12 bytes".
    """
    for unit, size in _UNITS:
        if size_bytes >= size:
            units = size_bytes / size
            return f"{units:.0f} {unit}" if units >= 100 else f"{units:.3g} {unit}"
    return counted(round(size_bytes), "byte")


def capitalized(text: str) -> str:
    """A sentence that stands by itself, from one of ours that follows another.

    What begins with a name of the user's, a file's say, stays as it is.
    """
    return text[:1].upper() + text[1:]
