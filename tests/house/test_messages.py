"""The catalogue of user-visible strings, and the phrases that none of them may contain."""

import re

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


def _stilted():
    lines = messages.CATALOGUE.read_text().splitlines()
    strings = [line for line in lines if line.startswith("  ")]
    return [line for line in strings if any("None" not in hit for hit in STILTED.findall(line))]


def test_the_catalogue_holds_the_strings_of_the_tree():
    assert messages.CATALOGUE.read_text() == messages.render(), (
        "run `python -m tests.house.messages`, and read what it changes"
    )


def test_no_string_has_a_stilted_phrase():
    assert _stilted() == []


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
