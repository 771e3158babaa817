"""Plants bottlenecks into real jobs and looks whether `hvdtune timeline why` finds them.

    python -m studies.timeline.study --cases 200 --balanced 100 --out planted.jsonl
    python -m studies.timeline.study --summary planted.jsonl
    python -m studies.timeline.study --only slow-input --cases 3 --keep traces

Each case is launched with its plant and without it; the difference of a step, by the ranks' own
clocks, is what the plant costs: of the median step, or of the mean where only some have the plant.
The bars: the first finding has the right kind in 95 % of cases and the right rank in all, its cost
is within 10 % of what the plant costs; at most 2 % of balanced launches are accused. Run it on a
quiet machine, as root for what needs several hosts.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import itertools
import json
import math
import multiprocessing
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hvdtune.timeline import Trace, merge
from hvdtune.timeline.analysis.findings import Answer, why
from hvdtune.timeline.model.job_metadata import job_metadata_of
from studies.timeline.job import Place, Run, train
from studies.timeline.plants import PLANTS, Case, balanced
from tests.parallel import netns
from tests.parallel.ranks import run

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
SETTLE_STEPS = 6  # as `metrics.breakdown.steady` leaves out
TRIES = 3


@dataclass(frozen=True)
class Launched:
    """What one launch gave: its trace, what each step took, in ms, a row per rank, and the share
    of the processors that other machines had meanwhile."""

    trace: Trace
    step_ms: np.ndarray
    stolen: float

    def step_takes_ms(self, *, in_every_step: bool) -> float:
        """The sum over all ranks: a step's marks lie apart where a rank pauses, their sum does not.

        What is in every step moves the median, which rare disturbances do not.
        """
        steps = self.step_ms[:, SETTLE_STEPS:]
        return float(np.median(steps, axis=1).mean() if in_every_step else steps.mean())


def launch(wanted: Run, steps: int, folder: Path) -> Launched:
    """Run it once and read its trace."""
    options: dict[str, Any] = {"setting": wanted.setting}
    place = wanted.place
    with ExitStack() as stack:
        stack.enter_context(_burning(place.burners))
        if place.hosts:
            options["places"] = stack.enter_context(_hosts(place))
        elif place.private:
            options["places"] = [Secretive()] * place.ranks
        took = run(
            train,
            place.ranks,
            wanted.work,
            steps,
            str(folder),
            timeline=str(folder / "rank-%r.hvt"),
            timeout_s=300.0,
            **options,
        )
    trace = merge(sorted(folder.glob("rank-*.hvt")))
    stolen = max(each.stolen for each in took)
    return Launched(trace, np.array([each.step_ms for each in took]), stolen)


def launch_calmly(wanted: Run, steps: int, folder: Path, *, limit: float) -> Launched:
    """Run it again while more than `limit` was stolen; of `TRIES` the calmest counts."""
    best: Launched | None = None
    for number in range(TRIES):
        where = folder / str(number)
        where.mkdir(parents=True)
        launched = launch(wanted, steps, where)
        if best is None or launched.stolen < best.stolen:
            best = launched
        if best.stolen <= limit:
            break
    assert best is not None
    return best


def _burn() -> None:
    while True:
        pass


@contextmanager
def _burning(count: int) -> Iterator[None]:
    """So many processes compute while the block runs."""
    context = multiprocessing.get_context("forkserver")
    burners = [context.Process(target=_burn, daemon=True) for _ in range(count)]
    try:
        for burner in burners:
            burner.start()
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


@contextmanager
def _hosts(place: Place) -> Iterator[list[netns.Host]]:
    names = sorted(set(place.hosts))
    with netns.network(len(names)) as network:
        if place.rate:
            network.limit(place.rate, burst=place.burst)
        if place.slow_host >= 0:
            slow = netns.Network([network.hosts[place.slow_host]], network.hosts[0])
            slow.limit(place.slow_rate)
        for host in network.hosts if place.stream_rate else ():
            _limit_streams(host, place.stream_rate)
        yield [network.hosts[names.index(name)] for name in place.hosts]


def _limit_streams(host: netns.Host, rate: str) -> None:
    """Each connection has its own limit: 1,024 classes, by the sum of both port numbers."""
    classes = range(1024)
    code = (
        (0x28, 34),  # load the source port, behind the headers of Ethernet and IPv4
        (0x07, 0),  # keep it
        (0x28, 36),  # load the target port
        (0x0C, 0),  # add
        (0x54, len(classes) - 1),  # modulo
        (0x44, 0x10000 + len(classes)),  # the class: 1:400 and up, in hexadecimal
        (0x16, 0),  # return
    )
    lines = ["qdisc replace dev eth0 root handle 1: htb"]
    for number in classes:
        minor = f"{len(classes) + number:x}"
        lines.append(f"class add dev eth0 parent 1: classid 1:{minor} htb rate {rate}")
    steps = ",".join(f"{operation} 0 0 {operand}" for operation, operand in code)
    program = f"bytecode '{len(code)},{steps}'"
    lines.append(f"filter add dev eth0 parent 1: bpf {program} classid 1:1")
    batch = "\n".join(lines)
    host.run("sh", "-c", f"tc -batch - > /dev/null 2>&1 <<'END'\n{batch}\nEND")


class Secretive(netns.Host):
    """This host, for ranks whose memory no other process may read."""

    def __init__(self) -> None:
        super().__init__("localhost", "127.0.0.1", 0)

    def enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        refuse, allow = 0x00050000 | errno.EPERM, 0x7FFF0000  # SECCOMP_RET_ERRNO, _ALLOW
        rules = [
            (0x20, 0, 0, 0),  # load the number of the system call
            (0x15, 1, 0, 310),  # process_vm_readv
            (0x15, 0, 1, 311),  # process_vm_writev
            (0x06, 0, 0, refuse),
            (0x06, 0, 0, allow),
        ]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 5, ctypes.addressof(code)))
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(_PR_SET_SECCOMP, 2, program, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")

    @contextmanager
    def entered(self) -> Iterator[None]:
        yield


def ask(wanted: Run, launched: Launched) -> Answer:
    return why(launched.trace, job_metadata_of(launched.trace, wanted.link_gbps))


def try_case(
    case: Case, steps: int, folder: Path, *, plant_first: bool, limit: float
) -> dict[str, Any]:
    """Both launches and what was said of the one with the plant."""
    runs = {"with": case.with_plant, "without": case.without}
    done = {}
    for name in sorted(runs, reverse=not plant_first):
        done[name] = launch_calmly(runs[name], steps, folder / name, limit=limit)
    answer = ask(case.with_plant, done["with"])
    first = answer.findings[0] if answer.findings else None
    step_ms = {
        name: each.step_takes_ms(in_every_step=case.in_every_step) for name, each in done.items()
    }
    return {
        "kind": case.kind,
        "ranks": case.with_plant.place.ranks,
        "rank": case.rank,
        "intensity": case.intensity,
        "with_ms": round(step_ms["with"], 3),
        "without_ms": round(step_ms["without"], 3),
        "truth_ms": round(step_ms["with"] - step_ms["without"], 3),
        "stolen": round(max(each.stolen for each in done.values()), 4),
        "verdict": answer.verdict,
        "found": first.kind if first else "",
        "found_ranks": list(first.ranks) if first else [],
        "cost_ms": round(first.cost.mean, 3) if first else 0.0,
        "others": [[f.kind, list(f.ranks), round(f.cost.mean, 3)] for f in answer.findings[1:]],
    }


def try_balanced(wanted: Run, steps: int, folder: Path, *, limit: float) -> dict[str, Any]:
    launched = launch_calmly(wanted, steps, folder, limit=limit)
    answer = ask(wanted, launched)
    return {
        "kind": "balanced",
        "ranks": wanted.place.ranks,
        "with_ms": round(launched.step_takes_ms(in_every_step=True), 3),
        "stolen": round(launched.stolen, 4),
        "verdict": answer.verdict,
        "others": [[f.kind, list(f.ranks), round(f.cost.mean, 3)] for f in answer.findings],
    }


def is_right(row: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Kind, rank and cost; a rank is right if it is named, and none where there is none."""
    kind = row["found"] == row["kind"]
    expected = [] if row["rank"] is None else [row["rank"]]
    error = abs(row["cost_ms"] - row["truth_ms"])
    return kind, row["found_ranks"] == expected, error <= 0.1 * abs(row["truth_ms"])


def summary(every: list[dict[str, Any]], limit: float) -> str:
    """A line per kind, then the bars; of launches that were left the processors they have."""
    rows = [row for row in every if row["stolen"] <= limit]
    planted = [row for row in rows if row["kind"] != "balanced"]
    calm = [row for row in rows if row["kind"] == "balanced"]
    lines = ["| kind | cases | right kind | right rank | cost within 10 % | cost / truth |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for kind in dict.fromkeys(row["kind"] for row in planted):
        lines.append(_line(kind, [row for row in planted if row["kind"] == kind]))
    if planted:
        lines.append(_line("all", planted))
    if calm:
        accused = sum(bool(row["others"]) for row in calm)
        lines.append(f"\n{accused} of {len(calm)} balanced launches were accused.")
    if len(rows) < len(every):
        lines.append(
            f"\nLeft out: {len(every) - len(rows)} in which more than {100 * limit:g} % of the "
            "processors went to other machines."
        )
    return "\n".join(lines)


def _line(title: str, rows: list[dict[str, Any]]) -> str:
    right = [is_right(row) for row in rows]
    kinds, ranks, costs = (sum(each) for each in zip(*right, strict=True))
    ratios = [row["cost_ms"] / row["truth_ms"] for row in rows if row["truth_ms"] > 0]
    middle = float(np.median(ratios)) if ratios else math.nan
    return f"| {title} | {len(rows)} | {kinds} | {ranks} | {costs} | {middle:.2f} |"


def cases(count: int, only: str, ranks: int) -> Iterator[Case]:
    """All kinds in turn, with ranks and intensities changing."""
    makes = [make for make in PLANTS if not only or make(2, 0, 0).kind == only]
    if not makes:
        raise SystemExit(f"no plant makes {only}")
    for index in range(count):
        turn = index // len(makes)
        size = ranks or 2 + turn % 3
        yield makes[index % len(makes)](size, (turn + 1) % size, (turn // 2) % 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--balanced", type=int, default=0)
    parser.add_argument("--only", default="", help="this kind")
    parser.add_argument("--ranks", type=int, default=0, help="so many instead of 2 to 4 in turn")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument(
        "--stolen",
        type=float,
        default=2.0,
        help="%% of the processors that may go to other machines: more, and a launch is repeated",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="append a line of JSON for each case; those it has are not repeated",
    )
    parser.add_argument("--keep", type=Path, help="keep traces in this folder")
    parser.add_argument("--summary", type=Path, help="only print the table of such a file")
    arguments = parser.parse_args()
    limit = arguments.stolen / 100
    if arguments.summary:
        print(summary(_known(arguments.summary), limit))
        return
    rows = _known(arguments.out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        for row in _rows(arguments, folder, rows):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if arguments.out:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(summary(rows, limit))


def _known(out: Path | None) -> list[dict[str, Any]]:
    if out is None or not out.exists():
        return []
    return [json.loads(line) for line in out.read_text().splitlines()]


def _rows(
    arguments: argparse.Namespace, folder: Path, known: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    missing = netns.why_not()
    calm = sum(row["kind"] == "balanced" for row in known)
    planted = len(known) - calm
    every = enumerate(cases(arguments.cases, arguments.only, arguments.ranks))
    for index, case in itertools.islice(every, planted, None):
        if case.with_plant.place.hosts and missing:
            print(f"left out {case.kind}: {missing}")
            continue
        where = folder / f"{index}-{case.kind}"
        began = time.monotonic()
        row = try_case(
            case, arguments.steps, where, plant_first=index % 2 == 0, limit=arguments.stolen / 100
        )
        yield row | {"took_s": round(time.monotonic() - began, 1)}
    for index in range(calm, arguments.balanced):
        wanted = balanced(arguments.ranks or 2 + index % 3, index // 3)
        where = folder / f"balanced-{index}"
        yield try_balanced(wanted, arguments.steps, where, limit=arguments.stolen / 100)


if __name__ == "__main__":
    main()
