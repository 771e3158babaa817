"""Writes a Chrome trace of any size, as programs write them: python -m studies.bench.chrome_trace.

Ranks are processes; each step has nested slices, pairs of B and E, collectives with arguments,
counters, instants, flows, asynchronous slices, in the object form. 1 GB holds 6.5 million events.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

RANKS = 8
TENSORS = 40
STEP_US = 50_000


def main() -> None:
    """Parses the command line and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--megabytes", type=float, default=1000.0)
    options = parser.parse_args()
    events = write(options.path, int(options.megabytes * 1e6))
    print(f"{options.path}: {options.path.stat().st_size / 1e6:.0f} MB, {events:,} events")


def write(path: Path, size_bytes: int, seed: int = 1) -> int:
    """Write a trace of about `size_bytes`; returns the number of its events."""
    steps = [_Step(random.Random(seed + number)) for number in range(7)]
    with open(path, "wb") as file:
        file.write(b'{"displayTimeUnit":"ms","otherData":{"generator":"chrome_trace"},\n')
        file.write(b'"traceEvents":[\n')
        titles = list(_titles())
        file.write(",\n".join(titles).encode())
        events, number = len(titles), 0
        while file.tell() < size_bytes:
            step = steps[number % len(steps)]
            file.write(step.text(number).encode())
            events += step.events
            number += 1
        file.write(b"\n]}\n")
    return events


def _titles() -> Iterator[str]:
    for rank in range(RANKS):
        yield (
            f'{{"ph":"M","name":"process_name","pid":{rank},"tid":0,'
            f'"args":{{"name":"rank {rank} (host-{rank // 4})"}}}}'
        )
        for tid, title in enumerate(("steps", "communication", "input"), start=1):
            yield (
                f'{{"ph":"M","name":"thread_name","pid":{rank},"tid":{tid},'
                f'"args":{{"name":"{title}"}}}}'
            )


class _Step:
    """The events of one step of all ranks; only times and numbers differ between steps."""

    def __init__(self, chance: random.Random) -> None:
        self._lines: list[str] = []
        self._offsets_us: list[float] = []
        for rank in range(RANKS):
            self._rank(chance, rank)
        self.events = len(self._lines)
        order = sorted(range(self.events), key=self._offsets_us.__getitem__)
        self._template = "".join(f",\n{self._lines[index]}" for index in order)
        self._offsets_us = [self._offsets_us[index] for index in order]

    def text(self, number: int) -> str:
        begin = number * STEP_US
        return self._template.replace("#STEP#", str(number)) % tuple(
            begin + offset for offset in self._offsets_us
        )

    def _add(self, at_us: float, line: str) -> None:
        self._lines.append(line.replace("%", "%%").replace("#TS#", "%.3f"))
        self._offsets_us.append(at_us)

    def _slice(self, at_us: float, lasted_us: float, rank: int, tid: int, rest: str) -> None:
        head = f'{{"ph":"X","pid":{rank},"tid":{tid},"ts":#TS#,"dur":{lasted_us:.3f}'
        self._add(at_us, f"{head},{rest}}}")

    def _rank(self, chance: random.Random, rank: int) -> None:
        step = '"name":"STEP","cat":"steps","args":{"step":#STEP#}'
        self._slice(0.001, STEP_US - 10.0, rank, 1, step)
        for index in range(TENSORS):
            at = 100.0 + index * (STEP_US - 2000) / TENSORS
            tensor = f"layer{index // 2}.block.conv{index % 2}.weight"
            size = 4 << (index % 20)
            self._compute(chance, rank, at, index)
            self._slice(
                at + 400 + chance.random() * 50,
                300 + chance.random() * 90,
                rank,
                2,
                f'"name":"ALLREDUCE","cat":"tensor","args":{{"seq":#STEP#,"tensor":"{tensor}",'
                f'"bucket":{index},"bytes":{size},"dtype":"float32"}}',
            )
            self._paired(chance, rank, at, index)
        self._counter(rank)

    def _compute(self, chance: random.Random, rank: int, at_us: float, index: int) -> None:
        outer = 300 + chance.random() * 60
        self._slice(
            at_us, outer, rank, 1,
            f'"name":"aten::convolution_backward","cat":"op","args":{{"id":{index},'
            f'"Sequence number":#STEP#,"Concrete Inputs":["","","[1, 1]"],"Ev Idx":{index}}}',
        )  # fmt: skip
        for inner in range(3):
            lasted = outer / 4
            self._slice(
                at_us + inner * outer / 3, lasted, rank, 1,
                f'"name":"aten::mm_{inner}","cat":"op","args":{{"id":{inner},"parent":{index},'
                f'"Input Dims":"[[64, 128], [128, 256]]","Input type":["float","float"]}}',
            )  # fmt: skip

    def _paired(self, chance: random.Random, rank: int, at_us: float, index: int) -> None:
        place = f'"pid":{rank},"tid":3,"ts":#TS#'
        begin = f'{{"ph":"B","name":"load_batch_{index % 5}","cat":"input",{place}}}'
        self._add(at_us + chance.random(), begin)
        self._add(
            at_us + 200,
            f'{{"ph":"E",{place},"args":{{"rows":{index},"file":"shard-{index:05d}.tar"}}}}',
        )
        if index % 4 == 0:
            ident = f'"id":"{rank}.{index}.#STEP#","cat":"flow","name":"next"'
            self._add(at_us + 10, f'{{"ph":"s",{ident},"pid":{rank},"tid":1,"ts":#TS#}}')
            self._add(at_us + 460, f'{{"ph":"f","bp":"e",{ident},"pid":{rank},"tid":2,"ts":#TS#}}')
            ident = f'"id":{rank * 1000 + index},"cat":"request","name":"read"'
            self._add(at_us + 20, f'{{"ph":"b",{ident},"pid":{rank},"tid":3,"ts":#TS#}}')
            self._add(at_us + 90, f'{{"ph":"e",{ident},"pid":{rank},"tid":3,"ts":#TS#}}')

    def _counter(self, rank: int) -> None:
        place = f'"pid":{rank},"tid":1,"ts":#TS#'
        self._add(5.0, f'{{"ph":"C","name":"cycle",{place},"args":{{"tensors":3,"bytes":4096}}}}')
        self._add(6.0, f'{{"ph":"i","s":"t","name":"mark","cat":"steps",{place}}}')


if __name__ == "__main__":
    main()
