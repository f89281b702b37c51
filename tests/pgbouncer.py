"""Run PgBouncer in transaction mode in front of the test server."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

NO_POOLER = "no PgBouncer: apt-get install pgbouncer"
START_ATTEMPTS = 5
START_S = 10.0
POLL_S = 0.02
SETTINGS = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


def find_pooler() -> str | None:
    """Return the path of pgbouncer. Debian installs it in /usr/sbin, which may not be on PATH."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def pooled_url(url: str, program: str) -> Iterator[str]:
    """Yield the URL of the same database through a pooler that stops at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="duly-pgbouncer-"))
    try:
        for attempt in range(START_ATTEMPTS):
            # Another process may take the port before the pooler does.
            port, pooler = _start(url, program, folder)
            try:
                pooled = url.replace(f":{_parts(url)['port']}/", f":{port}/", 1)
                if _answers(pooled, pooler):
                    yield pooled
                    return
            finally:
                pooler.kill()
                pooler.wait()
            if attempt + 1 == START_ATTEMPTS:
                raise RuntimeError((folder / "log").read_text())
    finally:
        shutil.rmtree(folder)


def _start(url: str, program: str, folder: Path) -> "tuple[int, subprocess.Popen[bytes]]":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    settings = folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(**_parts(url), own_port=port, folder=folder))
    user = None
    if os.geteuid() == 0:
        user = "nobody"
        owner = pwd.getpwnam(user)
        for each in (folder, settings):
            os.chown(each, owner.pw_uid, owner.pw_gid)
    command = [program, "--quiet", str(settings)]
    extra: list[int] | None = None if user is None else []
    return port, subprocess.Popen(command, cwd=folder, user=user, extra_groups=extra)


def _answers(url: str, pooler: "subprocess.Popen[bytes]") -> bool:
    pause = threading.Event()
    for _ in range(int(START_S / POLL_S)):
        if pooler.poll() is not None:
            return False
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
        pause.wait(POLL_S)
    return False


def _parts(url: str) -> dict[str, str]:
    parts = conninfo_to_dict(url)
    return {name: str(parts.get(name) or "") for name in ("host", "port", "user")}
