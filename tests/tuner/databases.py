"""Private database servers for tests: in a temporary folder, on a Unix socket."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from hvdtune.tuner.storage.database import parse_url

_PLACES = ("/usr/sbin", "/usr/lib/postgresql/*/bin")


def program(*names: str) -> str:
    """The path of the first of these programs that this machine has; else the test is skipped."""
    folders = [str(path) for place in _PLACES for path in Path("/").glob(place[1:])]
    for name in names:
        found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *folders]))
        if found:
            return found
    pytest.skip(f"{names[0]} is not installed")


class Server:
    """A server in a folder of its own; `url` names its database."""

    def __init__(
        self, folder: Path, socket: str, words: list[str], url: str, goodbye: int = signal.SIGTERM
    ) -> None:
        self._folder, self._socket = folder, folder / socket
        self._words, self.url, self._goodbye = words, url, goodbye
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, cwd=self._folder, **as_user(self._folder)
            )
        # Before it listens: PyMySQL leaves sockets that nobody answers to the garbage collector.
        while not self._socket.exists():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.05)
        self.execute("SELECT 1")

    def stop(self) -> None:
        """Connections are cut."""
        assert self._process is not None
        self._process.send_signal(self._goodbye)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def execute(self, statement: str) -> None:
        """Waits for the server if need be."""
        engine = sqlalchemy.create_engine(parse_url(self.url), poolclass=sqlalchemy.NullPool)
        for _ in range(300):
            with contextlib.suppress(sqlalchemy.exc.OperationalError), engine.begin() as connection:
                connection.execute(sqlalchemy.text(statement))
                return
            time.sleep(0.1)
        pytest.fail((self._folder / "log").read_text())


def as_user(folder: Path) -> dict[str, object]:
    """Servers refuse to run as root: the user that the folder belongs to."""
    owner = folder.stat()
    if owner.st_uid == os.getuid():
        return {}
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


@contextlib.contextmanager
def folder_of_nobody() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hvdtune-db-", dir="/tmp"))
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    initdb, postgres = program("initdb"), program("postgres")
    with folder_of_nobody() as folder:
        data = folder / "data"
        run(folder, initdb, "-D", data, "-A", "trust", "-U", "tuner", "--no-sync")
        # Nothing comes and goes by itself, nothing in /dev/shm.
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": folder,
            "autovacuum": "off",
            "dynamic_shared_memory_type": "mmap",
            "fsync": "off",
        }
        words = [f"--{name}={value}" for name, value in settings.items()]
        url = f"postgresql://tuner@/postgres?host={folder}"
        # SIGINT is its fast shutdown: it does not wait for its clients to leave.
        server = Server(
            folder, ".s.PGSQL.5432", [postgres, "-D", str(data), *words], url, signal.SIGINT
        )
        with contextlib.ExitStack() as stack:
            stack.callback(server.stop)
            server.start()
            yield server


@contextlib.contextmanager
def mysql() -> Iterator[Server]:
    pytest.importorskip("pymysql")
    install = program("mariadb-install-db", "mysql_install_db")
    mariadbd = program("mariadbd", "mysqld")
    with folder_of_nobody() as folder:
        data, socket = folder / "data", folder / "socket"
        run(
            folder, install, "--no-defaults", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        )  # fmt: skip
        words = [
            mariadbd, "--no-defaults", f"--datadir={data}", f"--socket={socket}",
            "--skip-networking", "--innodb-flush-log-at-trx-commit=0", f"--pid-file={folder}/pid",
        ]  # fmt: skip
        url = f"mysql://root@localhost/mysql?unix_socket={socket}"
        server = Server(folder, "socket", words, url)
        with contextlib.ExitStack() as stack:
            stack.callback(server.stop)
            server.start()
            server.execute("CREATE DATABASE studies CHARACTER SET utf8mb4")
            server.url = url.replace("/mysql?", "/studies?")
            yield server


def run(folder: Path, *words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, **as_user(folder)
    )
    assert done.returncode == 0, done.stderr.decode()
