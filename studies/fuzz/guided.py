"""Feeds the readers of traces with what reaches new code in them: python -m studies.fuzz.guided.

Atheris (libFuzzer for Python) keeps the inputs that execute lines not executed before and changes
those, where studies.fuzz.readers draws from what is known of the formats. What fails is kept in
--folder as crash-... or timeout-...; give such a file to see the failure again.
"""

import argparse
import gzip
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("atheris") is None:
    print("fuzzing skipped: atheris is not installed (pip has it for Linux on x86_64)")
    sys.exit()
import atheris

ROOT = Path(__file__).parents[2]

with atheris.instrument_imports(include=["hvdtune.timeline"]):
    from tests.kit.damage import read_damaged
from tests.kit.traces import HOROVOD, KINETO, SPEEDSCOPE  # noqa: E402

# Long enough for the head and some events of each format: short inputs are tried more often.
_SEED_BYTES = 2_000
_LONGEST_BYTES = 4_096


def seeds() -> dict[str, bytes]:
    """The beginning of a trace of each kind, packed ones unpacked and packed again."""
    found = {path.name: path.read_bytes()[:_SEED_BYTES] for path in sorted(SPEEDSCOPE.iterdir())}
    for folder in (HOROVOD, KINETO):
        for path in sorted(folder.iterdir()):
            found[path.stem] = gzip.decompress(path.read_bytes())[:_SEED_BYTES]
    found["packed"] = gzip.compress(max(found.values(), key=len))
    found["own"] = (ROOT / "tests/golden/timeline/rank-0.hvt").read_bytes()[:_LONGEST_BYTES]
    return found


def main() -> None:
    """Parses the command line and looks; never returns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz-guided")
    parser.add_argument("inputs", nargs="*", type=Path, help="only look at these")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    trace = options.folder / "trace"

    def look(text: bytes) -> None:
        trace.write_bytes(text)
        read_damaged(trace)

    if options.inputs:
        for path in options.inputs:
            look(path.read_bytes())
        return
    corpus = options.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for name, text in seeds().items():
        (corpus / f"seed-{name}").write_bytes(text)
    words = [
        sys.argv[0],
        f"-max_total_time={options.seconds}",
        f"-max_len={_LONGEST_BYTES}",
        "-timeout=20",
        "-print_final_stats=1",
        "-verbosity=0",
        f"-artifact_prefix={options.folder}/",
        str(corpus),
    ]
    atheris.Setup(words, look)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
