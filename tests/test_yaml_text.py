"""YAML is read and written as PyYAML does, which Horovod reads its configuration files with."""

import pytest
import yaml

from hvdtune import yaml_text


@pytest.mark.parametrize(
    "text",
    [
        "", "~", "yes", "off", "True", "null", "017", "0x1f", "1_000", "12:30:45", "1.", ".inf",
        "1.0e-3", "2001-01-01", "'yes'", "1 MiB", "[a, 1, 2.5]", "{low: 1, high: [on, b]}",
        "a: {b: [1, 2.5]}\nc: &x [1]\nd: *x", "a: |\n  x\n  y",
    ],
)  # fmt: skip
def test_a_text_stands_for_what_it_does_to_pyyaml(text):
    assert yaml_text.load(text) == yaml.safe_load(text)


def test_a_number_may_lack_its_point():
    assert yaml_text.load("1e-3") == 1e-3


@pytest.mark.parametrize(
    "text", ["a: b: c", "- 1\n  a: 2", "*x", "!!python/object:x y", "a: 'x", "\0"]
)
def test_what_is_no_yaml_is_refused_with_its_line(text):
    with pytest.raises(yaml.YAMLError) as theirs:
        yaml.safe_load(text)
    with pytest.raises(yaml_text.YAMLError) as ours:
        yaml_text.load(text)
    theirs, ours = (getattr(error.value, "problem_mark", None) for error in (theirs, ours))
    assert (theirs and theirs.line) == (ours and ours.line)


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(yaml_text.YAMLError, match="duplicate key"):
        yaml_text.load("a: 1\na: 2")


@pytest.mark.parametrize(
    "value",
    [
        {"b": 1, "a": {"on": "off", "c": [1.5, None, True]}, "text": "yes"},
        {"long": "word " * 60, "of two": "lines\nhere", "foreign": "größer ✓", "empty": ""},
        {"number": "1e-3", "small": 1e-300, "many": 10**30, "none": [], "nothing": {}},
    ],
)
def test_what_is_written_is_read_again_by_both(value):
    text = yaml_text.dump(value)
    assert yaml_text.load(text) == yaml.safe_load(text) == value
    assert list(yaml_text.load(text)) == list(value)
    assert text.startswith(f"{next(iter(value))}:")
