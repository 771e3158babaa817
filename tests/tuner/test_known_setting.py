"""Later launches of a job begin with what earlier ones have ended with, in virtual time."""

import json
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import AfterVerdict, TuneResult, tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.results.earlier_studies import Past, past_of
from hvdtune.tuner.results.fingerprint import parse_fingerprint
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.results.run_files import DRIFT_FILE
from hvdtune.tuner.search.known_setting import EarlierLaunch, EarlierProof, KnownSetting
from hvdtune.tuner.space.tune_options import ProofOptions, TuneOptions
from hvdtune.tuner.stats.estimates import Noise
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

GAIN = 0.08
KNOWN: Setting = {**DEFAULT, "cycle_time_ms": 0.2}
FINGERPRINT = {"world": 2, "slots": [2], "cores": 8, "hvdtune": "0.1.0"}


def short_cycles_win(setting: Setting) -> float:
    return GAIN if float(setting["cycle_time_ms"]) < 0.9 else 0.0


def launches_differ(setting: Setting, launch: random.Random) -> float:
    del setting
    return launch.gauss(0, 0.005)


def run_json(default: Setting = DEFAULT) -> dict[str, Any]:
    study = {"default": dict(default), "objectives": ["step_time"]}
    return {"command": ["train.py"], "hosts": ["a", "a"], "study": study, "variables": {}}


class Jobs:
    """Runs of one command, each in a folder of its own below `parent`."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.runs = 0

    def past(self, fingerprint: Mapping[str, Any] = FINGERPRINT, **run: Any) -> Past:
        here = parse_fingerprint(fingerprint)
        return past_of({**run_json(), **run}, here, [self.parent], self.folder)

    @property
    def folder(self) -> Path:
        return self.parent / f"train-{self.runs}"

    def run(self, script: Script, known: KnownSetting | None, **options: Any) -> TuneResult:
        self.cluster = SimulatedCluster(script)
        self.said: list[StudyProgress] = []
        self.after: list[AfterVerdict] = []
        study = Study(self.cluster.start, KNOBS, DEFAULT, fingerprint=FINGERPRINT, known=known)
        chosen = TuneOptions(**{"trials": 8, "seed": 3, **options})
        folder = self.folder
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(run_json()))
        clock = self.cluster.clock
        result = tune(study, folder, chosen, self.said.append, clock, self.after.append)
        self.runs += 1
        return result

    @property
    def messages(self) -> str:
        return "\n".join(progress.message for progress in self.said)

    def phases(self) -> set[str]:
        return {pair.phase for pair in read_study(self.parent / f"train-{self.runs - 1}").pairs}


def known_of(*launches: float, pairs: int = 7, sd: float = 0.02) -> KnownSetting:
    """A setting that gained so much in as many launches."""
    draw = random.Random(1)
    earlier = [
        EarlierLaunch(tuple(gain + draw.gauss(0, sd) for _ in range(pairs)), Noise(sd, 5))
        for gain in launches
    ]
    return KnownSetting(KNOWN, tuple(earlier), None, "runs/train-0", {})


def test_later_launches_begin_with_the_choice_of_the_first_and_add_to_its_evidence(
    tmp_path: Path,
) -> None:
    jobs = Jobs(tmp_path)
    assert jobs.past() == Past()
    first = jobs.run(Script(gain=short_cycles_win, launch_gain=launches_differ), None)
    assert first.verdict.improved and first.verdict.evidence is None
    known = jobs.past().known
    assert known is not None and known.setting == first.verdict.setting
    assert len(known.launches) == first.verdict.launches

    for run in (1, 2):
        known = jobs.past().known
        assert known is not None
        script = Script(seed=run, gain=short_cycles_win, launch_gain=launches_differ)
        later = jobs.run(script, known)
        launches = len(known.launches)
        assert f"{launches} earlier launches of this job are known" in jobs.messages
        assert jobs.phases() == {"calibrate", "verify"} and len(jobs.cluster.jobs) == 1
        assert later.verdict.improved and later.verdict.setting == first.verdict.setting
        assert jobs.cluster.jobs[-1].proposed[-1] == first.verdict.setting
        evidence = later.verdict.evidence
        assert evidence is not None and evidence.earlier == launches
        assert len(evidence.gains_percent) == launches + 1

    assert evidence is not None and evidence.ci_percent is not None
    low, high = evidence.ci_percent
    assert low < 100 * math.expm1(GAIN) < high
    folder = tmp_path / "train-2"
    assert read_profile(folder / "profile.yaml", KNOBS).verdict.evidence == evidence
    assert f"{launches} earlier launches of this job" in (folder / "report.md").read_text()
    assert f"{launches} of them earlier" in later.verdict.text


def test_launches_in_which_a_large_gain_was_verified_on_two_pairs_are_known(tmp_path: Path) -> None:
    def gain(setting: Setting) -> float:
        return 0.7 if float(setting["cycle_time_ms"]) < 0.9 else 0.0

    jobs = Jobs(tmp_path)
    first = jobs.run(Script(gain=gain), None).verdict
    assert first.improved and first.pairs == 2 * first.launches
    known = jobs.past().known
    assert known is not None and len(known.launches) == first.launches
    jobs.run(Script(seed=1, gain=gain), known)
    assert jobs.phases() == {"calibrate", "verify"}


def test_a_proof_of_one_launch_stays_that_of_the_study_that_proved_it(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    alone = ProofOptions(launches=1, max_launches=1)
    first = jobs.run(Script(gain=short_cycles_win), None, proof=alone).verdict
    assert (first.improved, first.launches, first.proved_by) == (True, 1, "")
    later = jobs.run(Script(seed=1, gain=short_cycles_win), jobs.past().known).verdict
    proved_by = str(tmp_path / "train-0")
    assert later.improved and later.proved_by == proved_by
    assert later.ci_percent == first.ci_percent
    assert f"95 % CI in one launch of {proved_by}, confirmed: " in later.text
    assert f"proved in one launch of {proved_by}: " in later.in_use
    assert f"{proved_by} proved that training is about" in later.advice
    assert later.advice.endswith("and this run confirms it.")
    assert read_study(tmp_path / "train-1").trials_text == "0 trials"
    report = (tmp_path / "train-1" / "report.md").read_text()
    assert f"| in one launch of {proved_by}, which proved it |" in report
    known = jobs.past().known
    assert known is not None and known.proof is not None and known.proof.source == proved_by


def test_where_no_other_launch_counts_this_one_is_told_by_its_pairs_alone(tmp_path: Path) -> None:
    # The launch that the setting was found in has had its say.
    searched = EarlierLaunch((0.08, 0.09, 0.07, 0.08), Noise(0.02, 5), was_searched=True)
    proof = EarlierProof(8.3, (4.0, 12.8), 4, 1, "runs/train-0")
    known = KnownSetting(KNOWN, (searched,), proof, "runs/train-0", {})
    verdict = Jobs(tmp_path).run(Script(gain=short_cycles_win), known).verdict
    assert re.fullmatch(
        r"\+8\.3 % \[4\.0, 12\.8\] 95 % CI in one launch of runs/train-0, confirmed: "
        r"\+\d\.\d % \[\d\.\d, \d+\.\d\] in this launch, 20 pairs",
        verdict.text,
    )


def test_what_another_job_has_left_is_not_taken_over_and_the_reason_is_said(
    tmp_path: Path,
) -> None:
    jobs = Jobs(tmp_path)
    jobs.run(Script(gain=short_cycles_win), None)
    other = jobs.past({**FINGERPRINT, "cores": 4, "hvdtune": "0.2.0"})
    assert other.known is None
    assert other.refused == (
        f"{tmp_path / 'train-0'} ran the same command, but not the same job: cores: 8 there, "
        "4 here; hvdtune: 0.1.0 there, 0.2.0 here"
    )
    assert "started with a different setting" in jobs.past(study=run_json(KNOWN)["study"]).refused
    assert "variables SEED" in jobs.past(variables={"SEED": "01ab"}).refused
    assert jobs.past(command=["other.py"]) == Past()


def test_a_setting_that_was_given_up_after_the_verdict_is_not_begun_with(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.run(Script(gain=short_cycles_win), None)
    assert jobs.past().known is not None
    line = json.dumps({"setting": dict(DEFAULT), "text": "back to the default"})
    (tmp_path / "train-0" / DRIFT_FILE).write_text(line + "\n")
    assert jobs.past() == Past()


def test_a_known_setting_that_has_become_slower_ends_in_the_default_at_a_small_price(
    tmp_path: Path,
) -> None:
    jobs = Jobs(tmp_path)
    result = jobs.run(
        Script(gain=lambda setting: -0.10 * (float(setting["cycle_time_ms"]) < 0.9)),
        known_of(0.08, 0.07, 0.09),
        trials=3,
    )
    assert "is unlikely to be better here (-" in jobs.messages
    assert "back to the default" in jobs.messages
    assert result.verdict.setting == DEFAULT
    pairs = read_study(tmp_path / "train-0").pairs
    checked = [pair for pair in pairs if pair.phase == "verify" and pair.setting == KNOWN]
    assert sum(pair.steps for pair in checked) < TuneOptions.probe_share * 50_000
    assert "search" in jobs.phases()


def test_a_known_setting_that_makes_the_script_fail_is_given_up(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    script = Script(gain=short_cycles_win, crashes_with=lambda setting: setting == KNOWN)
    result = jobs.run(script, known_of(0.08, 0.07, 0.09), trials=3)
    assert "cycle_time_ms=0.2: rank 1 was killed (" in jobs.messages
    assert "segmentation fault): back to the default" in jobs.messages
    assert result.verdict.setting != KNOWN


def test_where_launches_may_be_slower_with_it_the_job_is_searched(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.run(Script(gain=short_cycles_win), known_of(0.12, -0.09, 0.06), trials=3)
    assert "its gain is uncertain, so other settings are tried too" in jobs.messages
    assert "search" in jobs.phases()


def test_what_is_known_can_be_ignored(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    script = Script(gain=short_cycles_win)
    jobs.run(script, known_of(0.08, 0.07, 0.09), trials=3, use_earlier=False)
    assert "earlier launches" not in jobs.messages
    assert "search" in jobs.phases()


def test_a_gain_that_launches_do_not_bear_out_is_used_without_being_claimed(
    tmp_path: Path,
) -> None:
    jobs = Jobs(tmp_path)
    known = known_of(0.055, 0.0, 0.03)
    result = jobs.run(Script(gain=lambda setting: 0.02 * (setting == KNOWN)), known, trials=3)
    verdict = result.verdict
    assert (verdict.kind, verdict.setting) == ("noisy", KNOWN)
    assert verdict.text.startswith("not proved over launches: ")
    assert verdict.expected is not None and verdict.expected.scope == "over launches"
    assert "not yet proved" in verdict.in_use
    (after,) = jobs.after
    assert after.prior is not None  # the probes of this launch go on from there


def test_tuners_of_a_shared_study_begin_with_what_the_first_has_ended_with(tmp_path: Path) -> None:
    share = SharedStudy(f"sqlite:///{tmp_path}/studies.db", "train", {"cores": 8})
    other = SharedStudy(share.url, share.study, {"cores": 4})
    options = TuneOptions(trials=6, seed=3)
    found = []
    for number, shared in enumerate((share, share, other)):
        # What is tried differs from tuner to tuner, so whatever it is gains something.
        script = Script(seed=number, gain=lambda setting: GAIN * (setting != DEFAULT))
        cluster = SimulatedCluster(script)
        study = Study(cluster.start, KNOBS, DEFAULT, share=shared)
        folder = tmp_path / f"train-{number}"
        found.append(tune(study, folder, options, clock=cluster.clock).verdict)
    first, same, elsewhere = found
    assert first.improved
    assert same.evidence is not None and same.evidence.earlier == first.launches
    assert same.setting == first.setting
    assert elsewhere.evidence is None
