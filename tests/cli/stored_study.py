"""A small study, as a tuner leaves it."""

import json
import time

from hvdtune.core.config.knobs import default_setting, load_knobs
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome

VERDICT = {"version": 1, "improved": True, "text": "+5.0 % [4.0, 6.0] 95 % CI, 24 pairs"}


def make_study(folder, share=None):
    """Two trials of four pairs each and a verdict, as a tuner would leave them."""
    folder.mkdir(parents=True)
    default = default_setting()
    space = make_space(load_knobs(), default, tunable=("cycle_time_ms",))
    options = TuneOptions(trials=2)
    with StudyStore(folder, space, options, share=share) as store, store.open_pairs() as log:
        for _ in range(2):
            number, setting = store.ask()
            phase = "search" if number else "calibrate"
            for _ in range(4):
                log.append(
                    Pair(
                        0, phase, number, setting, default, 0.05, 9.5, 10.0, 96, "ABBA", time.time()
                    )
                )
            store.tell(number, TrialOutcome("complete", 0.05, 0.01, 4))
        store.set("noise_floor", 0.6)
        store.set("noise_floor_pairs", 20)
        store.set("verdict", json.dumps(VERDICT))
        (folder / "verdict.json").write_text(json.dumps(VERDICT))
    run = {"v": 1, "command": ["train.py", "--lr", "1"], "hosts": ["localhost"], "study": None}
    (folder / "run.json").write_text(json.dumps(run))
    return folder
