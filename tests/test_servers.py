"""Tests of the PostgreSQL server for tests: shared between processes, and always stopped."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.missing import missing_tool
from tests.servers import NO_SERVER, ROOT, PostgresServer, find_binaries, shared_server

HOLDER = """
import sys
from pathlib import Path
from tests.servers import shared_server
with shared_server(Path(sys.argv[1]), Path(sys.argv[2])) as server:
    print("holding", flush=True)
    sys.stdin.read()
"""
STOP_MS = 30_000


@pytest.fixture
def binaries() -> Path:
    found = find_binaries()
    return found if found is not None else missing_tool(NO_SERVER)


def await_end(pid: int) -> None:
    """Wait until a process has ended, whether or not it is a child of this one."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.poll()
    ended.register(watched, select.POLLIN)
    assert ended.poll(STOP_MS), f"{pid} did not end"
    os.close(watched)


def test_postgres_is_a_server(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        version = connection.execute("SELECT version()").fetchone()
    assert version is not None
    assert version[0].startswith("PostgreSQL ")


def test_databases_are_created_from_templates(postgres_server: PostgresServer) -> None:
    template = postgres_server.create()
    with psycopg.connect(template) as connection:
        connection.execute("CREATE TABLE here (a int)")
    copy = postgres_server.create(template)
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM here").fetchone() == (0,)
    for url in (template, copy):
        postgres_server.drop(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(copy)


def test_server_is_shared_and_stops_with_the_last_holder(tmp_path: Path, binaries: Path) -> None:
    with shared_server(tmp_path, binaries) as first:
        with shared_server(tmp_path, binaries) as second:
            assert second == first
        with psycopg.connect(first.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        state = json.loads((tmp_path / "postgres.json").read_text())
    await_end(state["guard"])
    assert not Path(state["folder"]).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first.url)


def test_server_stops_when_its_holder_is_killed(tmp_path: Path, binaries: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), str(binaries)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        state = json.loads((tmp_path / "postgres.json").read_text())
        holder.send_signal(signal.SIGKILL)
    await_end(state["guard"])
    assert not Path(state["folder"]).exists()
