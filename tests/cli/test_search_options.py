import json

import pytest

_STEPS = """
init()
for _ in range({steps}):
    time.sleep(0.001)
    step()
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trials", "2", "--space", "none.yaml"], "cannot read none.yaml"),
        (["--trials", "2", "--space", "bad.yaml"], "bad.yaml:2: unknown knob cycle"),
        (["--trials", "2", "--objective", "speed"], "unknown objective speed"),
        (
            ["--trials", "2", "--knobs", "cache_capacity"],
            "cache_capacity cannot change in a live run",
        ),
        (
            ["--trials", "2", "--objective", "step_time", "--objective", "samples_per_s"],
            "step_time and samples_per_s are one objective",
        ),
        (
            [
                *("--trials", "2", "--sampler", "noisy_gp"),
                *("--objective", "step_time", "--objective", "cpu_time"),
            ],
            "the sampler noisy_gp supports only one objective",
        ),
        (["--trials", "2", "--knobs", ""], "--knobs: no knob is named; omit it"),
        (["--ignore-earlier"], "--ignore-earlier needs --trials or --autotune"),
        (["--trials", "2", "--knobs", "cache_enabled,,cycle_time_ms"], "--knobs 'cache_enabled,,"),
        (
            ["--trials", "2", "--knobs", "chunk_bytes", "--space", "space.yaml"],
            "--space space.yaml: cycle_time_ms is not one of the knobs",
        ),
        (
            ["--mode", "restart", "--knobs", "chunk_bytes", "--space", "space.yaml"],
            "--space space.yaml: cycle_time_ms is not one of the knobs",
        ),
        (
            ["--trials", "2", "--knobs", "ddp_bucket_cap_mb"],
            "--knobs names only knobs of DistributedDataParallel, which cannot change in a live",
        ),
        (
            ["--trials", "2", "--knobs", "live,ddp_bucket_cap_mb", "--step-budget", "100"],
            "A study with knobs of DistributedDataParallel measures the step time",
        ),
        (["--trials", "2", "--knobs", "speed,ddp_bucket_cap_mb"], "unknown knob speed"),
        (
            ["--trials", "2", "--knobs", "live,ddp_speed"],
            "unknown knob ddp_speed",
        ),
        (
            ["--trials", "2", "--knobs", "chunk_bytes", "--launch-time", "1s"],
            "--launch-time needs --mode restart",
        ),
        (["--autotune", "--knobs", ","], "--knobs: no knob is named; omit it"),
        (
            ["--fix", "cycle_time_ms=1", "--fix", "cycle_time_ms=2"],
            "cycle_time_ms has two values. Leave one out",
        ),
        (["--sampler", "random"], "--sampler needs --trials or --autotune"),
        (["--step-budget", "100"], "--step-budget needs --trials or --autotune"),
        (["--probe-share", "0.1"], "--probe-share needs --trials or --autotune"),
        (["--trials", "2", "--probe-share", "0.7"], "Invalid value for '--probe-share'"),
        (
            ["--mode", "restart", "--probe-share", "0.1"],
            "--mode restart tunes only the step time",
        ),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_anything_is_made(
    call, script, tmp_path, words, message
):
    script("init()")
    (tmp_path / "bad.yaml").write_text("cycle_time_ms: [1, 2]\ncycle: [1]\n")
    (tmp_path / "space.yaml").write_text("chunk_bytes: {low: 64 KiB}\ncycle_time_ms: {high: 5}\n")
    code, _, err = call("run", "-np", "1", *words, "train.py")
    assert code == 2
    assert err.startswith(f"hvdtune: error: {message}")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_several_objectives_are_measured_on_real_ranks(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=9_000))
    (tmp_path / "space.yaml").write_text("cycle_time_ms: {high: 5}\ncache_enabled: [true]\n")
    objectives = ("exposed_communication", "cpu_time", "step_time")
    run = hvdtune(
        "run", "-np", "2", "--trials", "3", "--time-budget", "10s", "--space", "space.yaml",
        *(word for name in objectives for word in ("--objective", name)),
        "-o", "study", "train.py",
    )  # fmt: skip
    _, err = run.communicate()
    assert run.returncode in (0, 3, 4), err
    lines = (tmp_path / "study" / "pairs.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    assert all(set(pair["further"]) == {"cpu_time", "step_time"} for pair in pairs)
    assert len({pair["log_ratio"] for pair in pairs}) == len(pairs)
    assert all(pair["setting"]["cache_enabled"] for pair in pairs)
    assert (
        "| trial | exposed_communication | cpu_time | step_time | setting |"
        in (tmp_path / "study" / "report.md").read_text()
    )
