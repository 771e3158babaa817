"""Runs all tests in two lanes side by side: what starts jobs, and what reads files and draws.

    python -m tests.lanes [options of pytest]

Much of the first waits: for ranks that are killed, for connections that are cut. The exit code is
that of the first lane that fails; what a lane prints is shown when it has ended.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent
WITHOUT_JOBS = ("dashboard", "house", "studies", "timeline", "tuner")


def lanes() -> list[list[str]]:
    """The folders of each lane; every folder with tests is in one."""
    folders = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")})
    return [
        [str(TESTS / name) for name in folders if (name in WITHOUT_JOBS) is without]
        for without in (False, True)
    ]


def main(options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for number, paths in enumerate(lanes()):
            output = (Path(folder) / str(number)).open("w+")
            command = [sys.executable, "-m", "pytest", *options, *paths]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            running.append((process, output))
        codes = []
        for process, output in running:
            codes.append(process.wait())
            output.seek(0)
            print(output.read(), flush=True)
            output.close()
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
