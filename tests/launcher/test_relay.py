"""A relay with a stand-in for ssh, which runs the other host's words here."""

import os
import signal
import subprocess
import sys

import pytest

from hvdtune import __version__
from hvdtune.launcher import frames
from hvdtune.launcher.frames import frame
from hvdtune.launcher.relay import relay_command, ssh_command
from tests.kit import programs

SSH = '#!/bin/sh\nfor last; do :; done\n{before}\nexec sh -c "$last"\n'


@pytest.fixture
def relay(tmp_path):
    """Runs a relay of a Python rank with this ssh; returns its process when it has ended."""

    def run(
        body,
        ssh=SSH,
        before="",
        folder=tmp_path,
        environ=None,
        descriptors=(),
        more_descriptors=(),
        command=None,
        **how,
    ):
        program = tmp_path / "bin" / "ssh"
        program.parent.mkdir(exist_ok=True)
        program.write_text(ssh.replace("{before}", before))
        program.chmod(0o755)
        command = command or (sys.executable, "-c", body)
        path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
        variables = programs.environ(PATH=path, HVDTUNE_RENDEZVOUS="127.0.0.1:1")
        return subprocess.run(
            relay_command("far", (), how.pop("answer_s", 60.0), descriptors, command),
            cwd=folder,
            env=variables | (environ or {}),
            pass_fds=(*descriptors, *more_descriptors),
            capture_output=True,
            timeout=200,
            check=False,
            **({"text": True} | how),
        )

    return run


def test_nothing_secret_is_in_sshs_words():
    words = ssh_command("far", ["-p", "22"], {"PYTHONPATH": "/a", "HVDTUNE_KEY_FD": "5"})
    assert words[0] == "ssh" and words[-2] == "far"
    assert "KEY" not in " ".join(words)


# As ssh does to the stderr that it shares.
_NO_WAITING = "python3 -c 'import os; os.set_blocking(2, False)'"


@pytest.mark.parametrize(
    ("body", "before", "out", "err"),
    [
        ("os.write(1, b'x' * 300_000); os.write(2, b'e')", "echo Welcome", "x" * 300_000, "e"),
        ("os.write(2, b'e' * 3_000_000)", _NO_WAITING, "", "e" * 3_000_000),
    ],
    ids=["without-the-words-of-the-login", "to-a-slow-reader"],
)
def test_what_a_rank_writes_comes_out_whole(relay, body, before, out, err):
    done = relay(f"import os; {body}", before=before)
    assert (done.returncode, len(done.stdout), len(done.stderr)) == (0, len(out), len(err))
    assert (done.stdout, done.stderr) == (out, err)


def test_a_signal_that_ended_the_rank_ends_the_relay(relay):
    assert relay("import os; os.kill(os.getpid(), 6)").returncode == -signal.SIGABRT


def test_a_descriptor_goes_there_and_back(relay):
    number = os.memfd_create("test")
    os.write(number, b"question")
    body = f"import os; print(os.pread({number}, 99, 0)); os.pwrite({number}, b'answer!!', 0)"
    done = relay(body, descriptors=(number,))
    assert (done.stdout, os.pread(number, 99, 0)) == ("b'question'\n", b"answer!!")
    os.close(number)


def test_another_host_keeps_its_own_home(relay):
    done = relay(
        "import os; print(os.environ.get('HOME'), os.environ['MINE'])",
        before="HOME=/far; export HOME",
        environ={"MINE": "goes along", "HOME": "/here"},
    )
    assert done.stdout == "/far goes along\n"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"ssh": "#!/bin/sh\nexit 255\n"}, "ssh cannot log in without a prompt"),
        ({"ssh": "#!/bin/sh\nexit 127\n"}, f"{sys.executable} is missing. "),
        ({"ssh": "#!/bin/sh\nexit 1\n"}, "Install hvdtune at the same path on this host."),
        ({"ssh": "#!/bin/sh\necho garbage\n"}, "The rank did not start. "),
        ({"before": 'cd / && rmdir "$OLDPWD"'}, "No such file or direct"),
        (
            {"ssh": "#!/bin/sh\nexec sleep 100\n", "answer_s": 1.0},
            "No answer from the agent within 1 s (HVDTUNE_START_TIMEOUT_S).\n",
        ),
        (
            {"command": ("no-such-program",)},
            "cannot start no-such-program: No such file or directory\n",
        ),
    ],
)
def test_what_went_wrong_is_one_sentence(relay, tmp_path, how, said):
    folder = tmp_path / "work"
    folder.mkdir()
    done = relay("", folder=folder, **how)
    assert done.returncode == 1
    assert done.stderr.startswith("hvdtune: far: ") and said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_version_there_is_named(relay, tmp_path):
    greeting = tmp_path / "greeting"
    greeting.write_bytes(frames.MAGIC + frame(frames.HELLO, b"0.0.1"))
    done = relay("", ssh=f"#!/bin/sh\ncat '{greeting}'; cat\n")
    assert f"The host has hvdtune 0.0.1, this host has {__version__}. " in done.stderr


# An agent that ends its rank once it has heard that the launcher lives.
_LISTENER = """
import os
from hvdtune import __version__
from hvdtune.launcher import frames
os.write(1, frames.MAGIC + frames.frame(frames.HELLO, __version__.encode()))
reader, kinds = frames.Frames(), []
while frames.ALIVE not in kinds:
    kinds += [kind for kind, _ in reader.feed(os.read(0, 65536))]
os.write(1, frames.frame(frames.EXIT, (7).to_bytes(4, "big")))
"""


def test_a_relay_says_that_it_lives(relay, tmp_path):
    (tmp_path / "listener.py").write_text(_LISTENER)
    assert relay("", ssh=f"#!/bin/sh\nexec '{sys.executable}' listener.py\n").returncode == 7


def test_what_comes_for_a_descriptor_that_was_not_sent_is_refused(relay, tmp_path):
    sent, kept = (os.memfd_create(name) for name in ("sent", "kept"))
    said = frame(frames.HELLO, __version__.encode())
    said += frame(frames.FILE, sent.to_bytes(4, "big") + b"answer")
    said += frame(frames.FILE, kept.to_bytes(4, "big") + b"attack")
    (tmp_path / "said").write_bytes(frames.MAGIC + said)
    command = f"#!/bin/sh\ncat '{tmp_path / 'said'}'\nexec cat >/dev/null\n"
    done = relay("", ssh=command, descriptors=(sent,), more_descriptors=(kept,))
    assert (os.pread(sent, 9, 0), os.pread(kept, 9, 0)) == (b"answer", b"")
    assert done.returncode == 1
    assert f"The agent writes to descriptor {kept}, which it does not have." in done.stderr
    os.close(sent)
    os.close(kept)


def test_a_descriptor_goes_to_a_host_that_allows_few(relay):
    number = os.memfd_create("test")
    os.write(number, b"question")
    done = relay(
        f"import os; print(os.pread({number}, 99, 0))",
        before="ulimit -n 64",
        descriptors=(number,),
    )
    assert (done.stdout, done.stderr) == ("b'question'\n", "")
    os.close(number)


def test_bytes_that_are_no_text_go_along(relay):
    body = "import os, sys; os.write(1, os.environb[b'ODD'] + os.fsencode(sys.argv[1]))"
    command = (sys.executable, "-c", body, os.fsdecode(b"\xff"))
    done = relay("", command=command, environ={"ODD": os.fsdecode(b"\xfe\n")}, text=False)
    assert (done.returncode, done.stdout) == (0, b"\xfe\n\xff")


def test_the_folder_is_in_pwd_there_too(relay, tmp_path):
    assert relay("import os; print(os.environ['PWD'])").stdout == f"{tmp_path}\n"


def test_a_connection_that_breaks_is_said_to(relay):
    # Only this shell is its child: the rank ends what carries it.
    ssh = SSH.replace("exec sh -c", "sh -c")
    body = "import os, psutil; psutil.Process(os.getppid()).kill(); input()"
    done = relay(body, ssh=ssh)
    said = "hvdtune: far: The connection broke, or the agent on that host was killed."
    assert done.stderr.splitlines()[-1] == said


def test_a_users_modules_are_not_taken_for_the_standard_librarys(relay, tmp_path):
    for name in ("select", "queue", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    assert relay("print('right')").stdout == "right\n"
