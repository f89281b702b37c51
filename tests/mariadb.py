"""MariaDB for tests: a throwaway server per test process, one database per test module."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql

URL_VARIABLE = "DULY_TEST_MARIADB_URL"
NO_SERVER = f"no MariaDB: set {URL_VARIABLE}, or: apt-get install mariadb-server"
COLLATION = "utf8mb4_nopad_bin"
START_S = 30.0
POLL_S = 0.05
START_ATTEMPTS = 5
# Nothing in a throwaway server is worth a disk write.
OPTIONS = {
    "bind-address": "127.0.0.1",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "innodb-doublewrite": "0",
    "innodb-buffer-pool-size": "64M",
    "max-connections": "200",
    "skip-log-bin": "",
    "skip-name-resolve": "",
    "performance-schema": "0",
}


def find_server() -> str | None:
    """Return the path of the server; Debian installs it where only root looks."""
    return shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class MariadbServer:
    """A running server that may create databases."""

    port: int

    def connect(self, database: str | None = None) -> pymysql.Connection[pymysql.cursors.Cursor]:
        """Return a connection of the test user."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="duly",
            database=database,
            autocommit=True,
            client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
        )

    def create(self) -> str:
        """Create an empty database; return its URL."""
        name = f"duly_{uuid.uuid4().hex}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE {COLLATION}")
        return f"mysql://duly@127.0.0.1:{self.port}/{name}"

    def drop(self, url: str) -> None:
        """Remove a database."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]}")


@contextlib.contextmanager
def started_server(binary: str) -> Iterator[MariadbServer]:
    """Start a server until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="duly-mariadb-"))
    user = ["--user=nobody"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "nobody")
    data = folder / "data"
    try:
        _install(folder, data, user)
        for _ in range(START_ATTEMPTS):
            # Another process may take the port before the server does.
            port = _free_port()
            options = [f"--{name}{'=' * bool(value)}{value}" for name, value in OPTIONS.items()]
            own = [f"--datadir={data}", f"--port={port}", f"--socket={folder / 'socket'}"]
            log = (folder / "log").open("ab")
            server = subprocess.Popen(
                [binary, "--no-defaults", *user, *own, f"--pid-file={folder / 'pid'}", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            log.close()
            try:
                if _is_ready(server, folder / "socket"):
                    yield MariadbServer(port)
                    return
            finally:
                server.kill()
                server.wait()
        raise RuntimeError((folder / "log").read_text()[-3_000:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _install(folder: Path, data: Path, user: list[str]) -> None:
    installer = shutil.which("mariadb-install-db") or "mariadb-install-db"
    words = [f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    output = ""
    for _ in range(START_ATTEMPTS):
        done = subprocess.run(
            [installer, "--no-defaults", *user, *words],
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode == 0:
            return
        shutil.rmtree(data, ignore_errors=True)
        output = done.stdout[-3_000:]
    raise RuntimeError(f"MariaDB could not be installed: {output}")


def _is_ready(server: subprocess.Popen[bytes], path: Path) -> bool:
    """Wait until the server answers, and create the test user; False: it has ended."""
    ends_at = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < ends_at:
        if not path.exists():  # it listens once the socket exists
            time.sleep(POLL_S)
            continue
        with (
            pymysql.connect(unix_socket=str(path), user="root") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE USER duly@'%'")
            cursor.execute("GRANT ALL ON *.* TO duly@'%' WITH GRANT OPTION")
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
