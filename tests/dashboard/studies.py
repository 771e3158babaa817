"""Studies as the tuner stores them: views built by hand, and one real study.db."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from hvdtune.core.config.knobs import Knob, default_setting
from hvdtune.tuner.results.profile import FORMAT_VERSION, Profile, ProfileVerdict, write_profile
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.storage.pair_log import Pair, PairLog
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome

DEFAULT = {"cycle_time_ms": 1.0}
VERDICT = {
    "version": 1,
    "improved": True,
    "kind": "improved",
    "gain_percent": 7.3,
    "ci_percent": [6.1, 8.4],
    "text": "+7.3 % [6.1, 8.4] 95 % CI, 4 pairs, A/A floor 0.6 %",
}


def verification_pair(launch: int, gain_percent: float, phase: str = "verify") -> Pair:
    """A pair whose setting was faster by `gain_percent`."""
    return Pair(
        launch=launch,
        phase=phase,
        trial=None,
        setting={"cycle_time_ms": 0.5},
        reference=DEFAULT,
        log_ratio=math.log1p(gain_percent / 100),
        setting_step_ms=38.0,
        reference_step_ms=38.0 * (1 + gain_percent / 100),
        steps=40,
        order="ABBA",
        t_unix=0.0,
    )


def write_study(
    folder: Path,
    reason: str = "slower than the default",
    beliefs: Mapping[int, Belief] = MappingProxyType({}),
) -> None:
    """Write study.db, pairs.jsonl and verdict.json with one trial of each outcome."""
    knob = Knob("cycle_time_ms", "ms", "float", 0.1, 50.0, True, 1.0, "live")
    options = TuneOptions(trials=3)
    outcomes = [
        TrialOutcome("complete", math.log1p(0.05), 0.004, 8),
        TrialOutcome("pruned", math.log1p(-0.03), 0.006, 3, reason),
        TrialOutcome("failed", None, None, 0, "rank 1 was lost"),
    ]
    with StudyStore(folder, make_space((knob,), DEFAULT), options) as store:
        for outcome in outcomes:
            number, _ = store.ask()
            store.tell(number, outcome)
        store.set("noise_floor", 0.6)
        store.set("noise_floor_pairs", 20)
        store.set(
            "beliefs", {number: msgspec.to_builtins(each) for number, each in beliefs.items()}
        )
        store.set("verdict", json.dumps(VERDICT))
    with PairLog(folder / "pairs.jsonl") as log:
        log.append(verification_pair(1, 0.1, "calibrate"))
        for launch, gain in ((2, 7.0), (2, 7.6), (3, 6.8), (3, 8.0)):
            log.append(verification_pair(launch, gain))
    (folder / "verdict.json").write_text(json.dumps(VERDICT))
    proof = ProfileVerdict(True, 7.3, (6.1, 8.4), 4, 2, 0.6, VERDICT["text"])
    winner = default_setting() | {"cycle_time_ms": 0.5}
    profile = Profile(FORMAT_VERSION, winner, default_setting(), proof, {}, "2026-11-22")
    write_profile(profile, folder / "profile.yaml")
