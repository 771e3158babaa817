"""The catalogue of user-visible strings, and the phrases that none of them may contain."""

import re
from collections import Counter

import pytest

from tests.house import messages

# Phrases of sentences that have to be read twice
STILTED = re.compile(
    r"\b(told|tells?|said|says|is none|are none|none of (?:it|them)|nothing of|anew|but for"
    r"|so (?:many|much|few)|of which|whoever|nobody|beside|as far as|that there (?:is|are)"
    r"|what (?:is|was|has|it|they)|who(?:m)? (?:waits?|has|is)|at the (?:most|least)|for ever"
    r"|by (?:it|so|which)|are few|goes on|go on|takes? over|is left out|stands? (?:in|for|out|on)"
    r"|in (?:its|their) place)\b",
    re.IGNORECASE,
)
# What is still to be rewritten, per area; 0 for all others. Lower a number with the strings.
BUDGET = {
    "hvdtune/core": 20,
    "hvdtune/distributed": 3,
    "hvdtune/launcher": 10,
    "hvdtune/recording.py": 1,
    "hvdtune/tuner": 12,
}


def _stilted_by_area():
    area, found = "", Counter()
    for line in messages.CATALOGUE.read_text().splitlines():
        if line.startswith("  "):
            found[area] += sum("None" not in hit for hit in STILTED.findall(line))
        elif "/" in line:
            top, below = line.split("/")[:2]
            area = f"{top}/{below}" if top == "hvdtune" else top
    return found


def test_the_catalogue_holds_the_strings_of_the_tree():
    assert messages.CATALOGUE.read_text() == messages.render(), (
        "run `python -m tests.house.messages`, and read what it changes"
    )


def test_no_string_has_a_stilted_phrase():
    over = {
        area: f"{count} phrases, {BUDGET.get(area, 0)} allowed"
        for area, count in _stilted_by_area().items()
        if count > BUDGET.get(area, 0)
    }
    assert over == {}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", 'raise E(f"{n} of " "them " + why)', ["{n} of them {why}"]),
        ("a.py", '"""A docstring of a module."""\nx = "one"\n', []),
        ("a.py", '@main.command()\ndef f():\n    """Run a job."""\n', ["Run a job."]),
        ("a.py", 'x = re.compile("a b")\ny: "int | str" = "SELECT rank FROM ranks"', []),
        ("a.cc", 'throw E("no rank " + name(n) +\n  " left");', ["no rank {name(n)} left"]),
        ("a.cc", '// "not this"\nlog("one "\n"line", "two words");', ["one line", "two words"]),
        ("a.js", "show(`${n} slices`, /a 'b/.test(x) ? 'a row' : 'none')", ["{n} slices"]),
    ],
)
def test_strings_are_found_and_joined(tmp_path, name, text, expected):
    file = tmp_path / name
    file.write_text(text)
    assert messages.messages_of(file) == expected
