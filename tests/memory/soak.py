"""Runs random programs of operations in flight, each with a disturbance, for as long as it takes.

    python -m tests.memory.soak --programs 10000 [--framework torch] [--seed 0]

A problem is printed as it is found, with the program that has it. The last line is the outcome as
JSON: how many programs of each kind ended in which way. The exit code is 1 when something was
wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.memory.job import Ending, run_job, sanitized_server
from tests.memory.programs import KINDS, Program, draw

LONGEST_JOB = 12
HOSTS = [None, None, None, ["127.0.0.1", "127.0.0.1", "127.0.0.2"]]


def jobs(seed: int, framework: str) -> Iterator[tuple[Sequence[Program], dict[str, Any]]]:
    """Programs for one job after the other, without an end, and the job's options."""
    chance = random.Random(f"{seed} {framework}")
    number = seed * 10_000_000
    while True:
        size = chance.choice((2, 2, 3))
        options: dict[str, Any] = {"transport": chance.choice(("auto", "auto", "auto", "tcp"))}
        if size == 3:
            options["hosts"] = chance.choice(HOSTS)
        count = chance.randint(1, LONGEST_JOB)
        todo = [draw(number + i, framework, size, lethal=False) for i in range(count)]
        number += count + 1
        if chance.random() < 0.6:
            todo.append(draw(number, framework, size, lethal=True))
        yield todo, options


def soak(framework: str, count: int, seed: int, seconds: float, **more: Any) -> list[Ending]:
    """The endings of at least so many programs, or of what `seconds` are enough for.

    Options of tests.parallel.ranks.start may follow.
    """
    begin = time.monotonic()
    endings: list[Ending] = []
    for todo, options in jobs(seed, framework):
        found = run_job(todo, **options, **more)
        for ending in found:
            for problem in ending.problems:
                print(f"BROKEN {ending.program} {options}: {problem}", flush=True)
        endings += found
        if len(endings) >= count or time.monotonic() - begin > seconds:
            return endings
    raise AssertionError("there is no last job")


def summary(endings: Sequence[Ending]) -> dict[str, Any]:
    ended: dict[str, Counter[str]] = {}
    for ending in endings:
        counts = ended.setdefault(ending.program.disturbance, Counter())
        counts[ending.kind()] += 1
    return {
        "programs": len(endings),
        "broken": sum(bool(ending.problems) for ending in endings),
        "kinds": dict(Counter(f"{e.program.framework} {e.program.kind}" for e in endings)),
        "interrupted": sum(r["interrupted"] for e in endings for r in e.reports.values()),
        "ended": {what: dict(counts) for what, counts in sorted(ended.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--framework", choices=KINDS, default="torch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--sanitized", action="store_true", help="see tests.memory.sanitized")
    options = parser.parse_args()
    more = {"forked_from": sanitized_server(options.framework)} if options.sanitized else {}
    endings = soak(options.framework, options.programs, options.seed, options.seconds, **more)
    report = summary(endings)
    print(json.dumps(report))
    raise SystemExit(1 if report["broken"] else 0)


if __name__ == "__main__":
    main()
