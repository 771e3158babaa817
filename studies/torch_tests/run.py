"""Torch's own tests of its collectives, over gloo and over hvdtune.

    pip install expecttest
    python studies/torch_tests/run.py [--ranks 4] [--only PART-OF-A-NAME ...]

The tests are those that torch's wheel carries, `torch.testing._internal.distributed`. They ask by
the backend's name what it offers, so they are told gloo in both runs; in the second one every group
that they make is hvdtune's. Printed are how
many tests do not apply to gloo on this machine, by torch's reason; the tests that gloo passes and
hvdtune does not, with the reason where they cannot apply to it; and hvdtune's share of what gloo
passes, in which those count as failed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

BACKENDS: Final = ("gloo", "hvdtune")
WANTED_PERCENT: Final = 95.0
TEST_TIMEOUT_S: Final = 60
# Tests of gloo that ask torch for gloo by its name, by the beginning of theirs.
OF_GLOO_ALONE: Final = {
    "test_get_backend": "asserts that the backend is called gloo",
    "test_monitored_barrier_gloo": "torch refuses its monitored_barrier to all other backends",
}


def main() -> int:
    """Returns 1 where hvdtune passes fewer than 95 of 100 tests that gloo passes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=4, help="of each test; the default is 4")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of tests' names")
    parser.add_argument("--backend", choices=BACKENDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.backend:
        return run_tests(given.backend, given.only)
    outcomes = {backend: outcomes_of(backend, given.ranks, given.only) for backend in BACKENDS}
    return tell(outcomes["gloo"], outcomes["hvdtune"])


def outcomes_of(backend: str, ranks: int, only: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What became of each test, and why, by its name: ("passed", "") and the like."""
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {
            "BACKEND": "gloo",
            "WORLD_SIZE": str(ranks),
            "TEMP_DIR": folder,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_TIMEOUT_S),
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "FATAL",
        }
        command = [sys.executable, __file__, "--backend", backend, "--only", *only]
        process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        outcomes: dict[str, tuple[str, str]] = {}
        for line in process.stdout:
            if line.startswith('{"test":'):
                row = json.loads(line)
                outcomes[row["test"]] = (row["outcome"], row["why"])
                print(f"{backend}: {row['test']} {row['outcome']}", file=sys.stderr, flush=True)
        if process.wait() != 0:
            sys.exit(f"the tests over {backend} ended with {process.returncode}")
    return outcomes


def tell(gloo: dict[str, tuple[str, str]], hvdtune: dict[str, tuple[str, str]]) -> int:
    """Prints the difference and the numbers."""
    counted = [test for test, (outcome, _) in gloo.items() if outcome == "passed"]
    failed = [test for test in counted if hvdtune[test][0] != "passed"]
    reasons = Counter(why for outcome, why in gloo.values() if outcome != "passed")
    for why, count in reasons.most_common():
        print(f"{count} tests do not apply to gloo here: {why}")
    for test in failed:
        print(f"{test}: {_why_not(test) or ': '.join(hvdtune[test])}")
    passed = len(counted) - len(failed)
    share = 100 * passed / len(counted) if counted else 100.0
    print(f"gloo passes {len(counted)} of {len(gloo)} tests")
    print(f"hvdtune passes {passed} of these, {share:.1f} %")
    return 0 if share >= WANTED_PERCENT else 1


def _why_not(test: str) -> str:
    found = [why for start, why in OF_GLOO_ALONE.items() if test.startswith(start)]
    return f"cannot apply: {found[0]}" if found else ""


def run_tests(backend: str, only: Sequence[str]) -> int:
    """Runs the tests in this process, which forks their ranks; a line of JSON for each."""
    import torch
    from torch import distributed
    from torch.testing._internal.distributed import distributed_test

    for function in ("init_process_group", "new_group"):
        setattr(distributed, function, _with(backend, getattr(distributed, function)))
    tests = distributed_test.DistributedTest._DistTestBase

    class Forked(distributed_test.TestDistBackend, tests):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            # Forked, for the sake of those who wait: torch's own runs spawn.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    names = unittest.TestLoader().getTestCaseNames(Forked)
    for name in names:
        if any(part in name for part in only):
            outcome, why = _outcome(Forked(name))
            print(json.dumps({"test": name, "outcome": outcome, "why": why}), flush=True)
    return 0


def _with(backend: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for which gloo is the backend."""

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        if named.get("backend") == "gloo":
            named["backend"] = backend
        positional = tuple(backend if value == "gloo" else value for value in positional)
        return function(*positional, **named)

    return call


def _outcome(test: unittest.TestCase) -> tuple[str, str]:
    result = unittest.TestResult()
    test.run(result)
    for _, why in result.skipped:
        return "skipped", why
    for _, trace in [*result.failures, *result.errors]:
        lines = [line for line in trace.splitlines() if "Error" in line]
        return "failed", (lines or trace.splitlines())[-1][:300]
    return "passed", ""


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
