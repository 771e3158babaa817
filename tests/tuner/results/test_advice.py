import math
import re
from dataclasses import replace

import pytest

from hvdtune.tuner.results.advice import explained
from hvdtune.tuner.results.unsearched import left_by_restarting, left_in_live_run
from hvdtune.tuner.space.targets import target_of
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.stats.verdict import SimplerSetting, Verdict, judge, nothing_verified
from tests.kit.simulated_job import DEFAULT

OTHER = {**DEFAULT, "fusion_threshold_bytes": 32 << 20}
KINDS = {
    "improved": [[0.060, 0.061, 0.059, 0.060, 0.062, 0.058, 0.060]] * 3,
    "default": [[0.001, -0.001, 0.002, -0.002, 0.001, 0.000, -0.001]] * 3,
    "noisy": [[0.30, -0.25, 0.20, -0.30, 0.25, -0.15, 0.10]] * 3,
    "unstable": [[0.060, 0.061, 0.059, 0.062], [-0.060, -0.061, -0.059, -0.062]],
}


def advice_on(verdict: Verdict) -> str:
    return explained(verdict, DEFAULT, goes_on=True).advice


@pytest.mark.parametrize("kind", KINDS)
def test_the_advice_follows_the_verdict_and_needs_no_statistics(kind: str) -> None:
    verdict = judge(OTHER, DEFAULT, KINDS[kind], 0.001)
    assert verdict.kind == kind
    advice = advice_on(verdict)
    assert advice.startswith("Use fusion_threshold_bytes=32 MiB" if kind == "improved" else "Keep")
    assert not re.search(r"interval|95|\bCI\b|A/A|noise floor|standard error|pair", advice)


def test_a_gain_of_few_launches_is_said_to_be_one() -> None:
    launches = KINDS["improved"]
    assert "over 3 launches" in advice_on(judge(OTHER, DEFAULT, launches, 0.001))
    assert "the next one may differ" in advice_on(judge(OTHER, DEFAULT, launches[:2], 0.001))
    one = judge(OTHER, DEFAULT, launches[:1], 0.001)
    assert "This holds for this run only" in advice_on(one)
    believed = Belief(6.0, 5.0, 7.0, "in this launch", (1.0, 11.0))
    said = explained(replace(one, believed=believed), DEFAULT, goes_on=True).in_use
    assert said.endswith("; estimate for other launches, from all measurements: +1.0 to +11.0 %")


def test_a_large_gain_is_said_as_people_say_it() -> None:
    many = [[math.log(13.27) + each for each in values] for values in KINDS["improved"]]
    assert "about 14.1 times as fast with it as with" in advice_on(judge(OTHER, DEFAULT, many, 0.1))
    assert "about 6.2 % faster with it than with the default" in advice_on(
        judge(OTHER, DEFAULT, KINDS["improved"], 0.001)
    )


@pytest.mark.parametrize("is_proved", [True, False])
def test_a_simpler_setting_that_gains_nearly_as_much_is_named(is_proved: bool) -> None:
    both = {**OTHER, "cycle_time_ms": 0.0063}
    verdict = judge(both, DEFAULT, KINDS["improved" if is_proved else "noisy"], 0.001)
    if not is_proved:
        verdict = replace(verdict, setting=both, expected=Belief(6.2, -0.3, 13.9))
    assert "alone" not in advice_on(verdict)
    simpler = SimplerSetting(OTHER, Belief(5.93, 4.0, 7.9))
    assert advice_on(replace(verdict, simpler=simpler)).endswith(
        " The estimate for fusion_threshold_bytes=32 MiB alone is about the same: 5.9 % faster. It "
        "was not verified."
    )


def test_what_is_expected_of_the_launch_that_runs_is_said_to_be_of_it_alone() -> None:
    verdict = nothing_verified(DEFAULT, 0.01, 20, "nothing is proved")
    expected = Belief(1.8, -0.3, 3.9, "in this launch", (-4.1, 8.0))
    said = explained(replace(verdict, setting=OTHER, expected=expected), DEFAULT, goes_on=True)
    assert said.in_use == (
        "in use: fusion_threshold_bytes=32 MiB, expected +1.8 % in this launch, not yet proved "
        "(95 %: -0.3 to +3.9 %; other launches (not measured): -4.1 to +8.0 %)"
    )
    assert "in this run" in said.advice and "This holds for this run only" in said.advice


def test_where_the_verified_setting_is_no_safe_bet_the_default_returns_with_the_reason() -> None:
    noisy = replace(
        judge(OTHER, DEFAULT, KINDS["noisy"], 0.001),
        believed=Belief(0.4, -2.5, 3.4),
        in_search=Belief(6.8, 5.5, 8.1, "in the launch of the search"),
    )
    said = explained(noisy, DEFAULT, goes_on=True)
    assert said.in_use == "in use: the default"
    assert said.advice.startswith(
        "Keep the default for now: fusion_threshold_bytes=32 MiB seemed 6.8 % faster in the "
        "launch of the search, but the estimate over all launches is between 2.5 % slower and "
        "3.4 % faster"
    )


@pytest.mark.parametrize(("high", "said"), [(-0.2, "gains nothing"), (0.7, "at most about 0.7 %")])
def test_a_default_that_stays_says_what_may_be_missed(high: float, said: str) -> None:
    verdict = judge(OTHER, DEFAULT, KINDS["default"], 0.001)
    assert said in advice_on(replace(verdict, ci_percent=(-1.0, high)))


def test_without_a_candidate_nothing_is_said_of_one() -> None:
    verdict = nothing_verified(DEFAULT, 0.01, 20, "no setting beats the default")
    assert advice_on(verdict) == ("Keep the default: no other setting is proved faster.")


OF_DDP = {"allreduce.bucket 0: 2.bias to 2.weight", "broadcast.first values of float32"}
OF_FSDP2 = {"allgather.layers.0", "reducescatter.layers.0", "allreduce.torch.3"}
OF_OPTIMIZER = {"layers.0.weight", "allgather.noname.1", "reducescatter.noname.2"}


@pytest.mark.parametrize(
    ("operations", "named"),
    [
        pytest.param(OF_DDP, "`hvdtune run --trials 40 --knobs live,ddp_bucket_cap_mb`", id="ddp"),
        pytest.param(OF_FSDP2, "arguments of FSDP2's fully_shard", id="fsdp2"),
        pytest.param(OF_OPTIMIZER, "`hvdtune run --trials 40 --mode restart", id="optimizer"),
        pytest.param(set(), "choices of the script (declare them with hvd.knob", id="unknown"),
    ],
)
@pytest.mark.parametrize("kind", [*KINDS, "nothing verified"])
def test_no_advice_keeps_the_default_of_knobs_that_were_not_searched(
    kind: str, operations: set[str], named: str
) -> None:
    verdict = nothing_verified(DEFAULT, 0.01, 20, "no setting is proved faster")
    if kind in KINDS:
        verdict = judge(OTHER, DEFAULT, KINDS[kind], 0.001)
    left = left_in_live_run(["cycle_time_ms", "channels"], operations)
    advice = explained(verdict, DEFAULT, goes_on=True, not_searched=left).advice
    if verdict.setting == DEFAULT:
        assert advice.startswith("Keep the default of the searched knobs")
        assert "Searched: cycle_time_ms, channels. Not searched: " in advice and named in advice
    else:
        assert "earched" not in advice
    assert ("FSDP2" in left) == (operations == OF_FSDP2)
    assert ("ddp_bucket_cap_mb" in left) == (operations == OF_DDP)


def test_a_script_that_declares_knobs_is_not_told_to() -> None:
    assert "hvd.knob" not in left_in_live_run(["script.chunks"], OF_DDP)


def test_knobs_that_a_study_by_restarting_left_out_are_named() -> None:
    knobs = target_of("ddp", {}).knobs
    left = left_by_restarting(["ddp_bucket_cap_mb"], knobs)
    assert "ddp_first_bucket_mb, ddp_gradient_as_bucket_view" in left
    assert left.endswith(" more (name them in --knobs).")
    assert not left_by_restarting([knob.name for knob in knobs], knobs)


def test_what_is_in_use_is_told_apart_from_what_is_proved() -> None:
    noisy = judge(OTHER, DEFAULT, KINDS["noisy"], 0.001)
    chosen = replace(noisy, setting=OTHER, expected=Belief(1.8, -0.3, 3.9))
    said = explained(chosen, DEFAULT, goes_on=True)
    assert said.in_use == (
        "in use: fusion_threshold_bytes=32 MiB, expected +1.8 % over launches, not yet proved "
        "(95 %: -0.3 to +3.9 %)"
    )
    assert "not proved" in said.advice
    assert (said.kind, said.exit_code, said.improved) == ("noisy", 4, False)

    assert explained(noisy, DEFAULT, goes_on=False).in_use == "to use: the default"

    proved = judge(OTHER, DEFAULT, KINDS["improved"], 0.001)
    assert proved.ci_percent is not None
    interval = "[{:.1f}, {:.1f}]".format(*proved.ci_percent)
    said = explained(proved, DEFAULT, goes_on=True)
    assert said.in_use == (
        "in use: fusion_threshold_bytes=32 MiB, proved over 3 launches: "
        f"{proved.gain_percent:+.1f} % {interval}"
    )
