"""Provides a temporary PostgreSQL cluster and a folder on a real disk.

Unlike the cluster of the tests, this one makes every disk write that a production server makes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from tests.servers import PostgresServer

START_ATTEMPTS = 5
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Benchmarks vacuum between measurements, so that autovacuum never runs during one.
    "autovacuum": "off",
}
IN_MEMORY = {"tmpfs", "ramfs"}

GUARD = """
cat
postmaster=$(head -n 1 "$1/cluster/data/postmaster.pid") && kill -QUIT "$postmaster"
while kill -0 "$postmaster"; do sleep 0.1; done
rm -rf "$1"
"""


class NoServer(Exception):
    """PostgreSQL did not start."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder, on disk if the machine has one; remove it afterwards."""
    usual = Path(tempfile.gettempdir())
    homes = [usual, Path("/var/tmp"), Path(__file__).parent]  # noqa: S108
    on_disk = (
        home
        for home in homes
        if home.is_dir() and os.access(home, os.W_OK) and filesystem(home) not in IN_MEMORY
    )
    folder = Path(tempfile.mkdtemp(prefix="duly-bench-", dir=next(on_disk, usual)))
    # PostgreSQL may run as another user, who must be able to reach its folder in here.
    folder.chmod(0o711)
    with _guarded(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Stop the cluster of a folder and remove both, even if this process is killed.

    A guard process in its own session waits for the end of its input, which this process holds.
    """
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "guard", str(folder)],  # noqa: S607
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate()


def filesystem(folder: Path) -> str:
    """Return the type of the filesystem of a folder."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "unknown"
    found = "unknown"
    longest = 0
    for line in mounts.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if folder.resolve().is_relative_to(point) and len(point) >= longest:
            found, longest = kind, len(point)
    return found


def fsync_ms(folder: Path, count: int = 50) -> float:
    """Return the median time to fsync one page in ms, the lower bound of every commit."""
    page, times = bytes(8192), []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(count):
            started = perf_counter()
            file.write(page)
            os.fsync(file.fileno())
            times.append((perf_counter() - started) * 1000)
    return median(times)


@contextlib.contextmanager
def durable_server(folder: Path, binaries: Path) -> Iterator[PostgresServer]:
    """Run a cluster in a folder until the end of the block."""
    cluster = folder / "cluster"
    cluster.mkdir()
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody")
        os.chown(cluster, owner.pw_uid, owner.pw_gid)
    _run(
        cluster,
        [binaries / "initdb", "--no-sync", "--no-instructions", "-D", cluster / "data"],
        ["--username=duly", "--auth=trust", "--encoding=UTF8", "--locale=C"],
    )
    try:
        yield PostgresServer(_start(cluster, binaries))
    finally:
        _run(cluster, [binaries / "pg_ctl", "-D", cluster / "data", "-m", "immediate", "stop"])


def _start(cluster: Path, binaries: Path) -> str:
    options = " ".join(f"-c {name}='{value}'" for name, value in OPTIONS.items())
    for _ in range(START_ATTEMPTS):
        # Another process may take the port before the server does.
        port = _free_port()
        started = _run(
            cluster,
            [binaries / "pg_ctl", "-w", "-D", cluster / "data", "-l", cluster / "log", "start"],
            ["-o", f"-p {port} {options}"],
        )
        if started:
            return f"postgresql://duly@127.0.0.1:{port}/postgres"
    raise NoServer((cluster / "log").read_text())


def _run(cluster: Path, command: list[str | Path], words: list[str] | None = None) -> bool:
    """Run a command of PostgreSQL, not as root; return whether it succeeded."""
    as_owner: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_owner = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
    done = subprocess.run(
        [*command, *(words or [])],
        cwd=cluster,
        check=False,
        stdout=subprocess.DEVNULL,
        **as_owner,
    )
    return done.returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
