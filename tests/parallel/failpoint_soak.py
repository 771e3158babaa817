"""Kills, stops or cuts off training ranks at random places of the core, many times.

    python -m tests.parallel.failpoint_soak --runs 1000 --seed 0

The last line is the outcome as JSON; the exit code is 1 when a run broke a rule.
"""

import argparse
import json

from tests.parallel import failpoint_native


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    failpoint_native.build()
    from tests.parallel import failpoint_job

    report = failpoint_job.soak(options.runs, options.seed, options.verbose)
    for action in failpoint_job.ACTIONS:
        print(f"{action}: {report[action]}")
    print(json.dumps(report))
    raise SystemExit(1 if report["broken"] else 0)


if __name__ == "__main__":
    main()
