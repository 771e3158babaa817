import re
from dataclasses import replace

import pytest

from hvdtune.tuner.results.advice import advice_on
from hvdtune.tuner.stats.verdict import judge, keep_default
from tests.kit.simulated_job import DEFAULT

OTHER = {**DEFAULT, "fusion_threshold_bytes": 32 << 20}
KINDS = {
    "improved": [[0.060, 0.061, 0.059, 0.060, 0.062, 0.058, 0.060]] * 3,
    "default": [[0.001, -0.001, 0.002, -0.002, 0.001, 0.000, -0.001]] * 3,
    "noisy": [[0.30, -0.25, 0.20, -0.30, 0.25, -0.15, 0.10]] * 3,
    "unstable": [[0.060, 0.061, 0.059, 0.062], [-0.060, -0.061, -0.059, -0.062]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_advice_follows_the_verdict_and_needs_no_statistics(kind: str) -> None:
    verdict = judge(OTHER, DEFAULT, KINDS[kind], 0.001)
    assert verdict.kind == kind
    advice = advice_on(verdict, DEFAULT)
    assert advice.startswith("Use fusion_threshold_bytes=32 MiB" if kind == "improved" else "Keep")
    assert not re.search(r"interval|95|\bCI\b|A/A|noise floor|standard error|pair", advice)


def test_a_gain_of_few_launches_is_said_to_be_one() -> None:
    launches = KINDS["improved"]
    assert "over 3 launches" in advice_on(judge(OTHER, DEFAULT, launches, 0.001), DEFAULT)
    one = judge(OTHER, DEFAULT, launches[:1], 0.001)
    assert "the next one may differ" in advice_on(one, DEFAULT)


@pytest.mark.parametrize(("high", "said"), [(-0.2, "gains nothing"), (0.7, "at most about 0.7 %")])
def test_a_default_that_stays_says_what_may_be_missed(high: float, said: str) -> None:
    verdict = judge(OTHER, DEFAULT, KINDS["default"], 0.001)
    assert said in advice_on(replace(verdict, ci_percent=(-1.0, high)), DEFAULT)


def test_without_a_candidate_nothing_is_said_of_one() -> None:
    verdict = keep_default(DEFAULT, 0.01, 20, "no setting beats the default")
    assert advice_on(verdict, DEFAULT) == (
        "Keep the default: no other setting has been shown to be faster."
    )
