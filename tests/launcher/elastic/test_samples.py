"""Every sample is trained once in each epoch, and the audit file says so."""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from hvdtune.core.elastic.samples import SampleLedger, read_audit
from hvdtune.errors import UsageError
from tests.kit.programs import run_cli
from tests.parallel.ranks import run

TRAINING = Path(__file__).with_name("sampler_training.py")
SAMPLES, EPOCHS = 50, 2


@pytest.mark.parametrize("kind", ["pad", "exact"])
@pytest.mark.parametrize("faults", [["0:3", "2:9"], ["1:2", "2:2"]])
def test_every_sample_is_trained_once_although_ranks_are_killed(tmp_path, kind, faults):
    options = ["-np", 3, "--min-np", 1, "-H", "localhost:3"]
    done = run_cli("run", *options, TRAINING, SAMPLES, EPOCHS, kind, *faults, folder=tmp_path)
    (found,) = re.findall(r"trained (\[.*\])", done.stdout)
    trained = Counter(ast.literal_eval(found))
    audited = read_audit(tmp_path / "audit.jsonl")
    assert Counter((epoch, n) for epoch, part in audited.items() for n in part) == trained
    assert {*trained} == {(epoch, n) for epoch in range(EPOCHS) for n in range(SAMPLES)}
    repeated = trained.total() - len(trained)
    assert repeated == 0 if kind == "exact" else repeated <= 3 * EPOCHS


def noted(*rows):
    return "".join(f"\n{json.dumps(row)}\n" for row in rows)


def row(commit, *samples):
    return {"commit": commit, "ranks": 1, "epochs": [[0, list(samples)]]}


def test_a_commit_that_is_noted_again_takes_back_what_came_after(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text(noted(row(1, 5), row(2, 6), row(3, 7), row(2, 8)) + '\n{"commit": 3, "ra')
    assert read_audit(path) == {0: [5, 8]}


def test_another_file_is_no_audit(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"loss": 3}')
    with pytest.raises(UsageError, match="not an audit file of an ElasticSampler"):
        read_audit(path)


def audit_late(path):
    ledger = SampleLedger(range(4), shuffle=False, audit=path)
    ledger.record_batch(0, 2)
    with pytest.warns(
        RuntimeWarning, match=r"cannot write the audit file .*audit\.jsonl"
    ) as warned:
        ledger.note_commit(1)
        ledger.note_commit(2)
    path.parent.mkdir()
    ledger.record_batch(1, 2)
    ledger.note_commit(3)
    return len(warned), read_audit(path)


def test_what_cannot_be_written_is_a_warning_and_written_later(tmp_path):
    assert run(audit_late, 1, tmp_path / "missing" / "audit.jsonl") == [(1, {0: [0, 1, 2, 3]})]
