"""The commands of docs/mpi.md do what it says."""

import shlex

import pytest

from tests.kit.pages import Page

PAGE = Page("docs/mpi.md")


@pytest.mark.slow
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"], indirect=True)
def test_the_commands_of_the_document_work(mpi, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PAGE.block("script"))
    spelled = {"hvdtune": ["python", "-m", "hvdtune"], "train.py": [script]}
    spelled["python"] = [mpi.folder / "bin" / "python"]
    for command in PAGE.commands():
        words = [word for each in shlex.split(command) for word in spelled.get(each, [each])]
        if words[0] == "mpirun" and mpi.flavour == "openmpi":
            words[1:1] = ["--bind-to", "none", "--oversubscribe"]
        done = mpi.run(words)
        assert done.returncode == 0, done.stdout + done.stderr
        if "mpirun" in command:
            assert done.stdout == "ranks: 2, by MPI: True\n"
        else:
            assert f"plugin    {mpi.environ['XDG_CACHE_HOME']}" in done.stdout
