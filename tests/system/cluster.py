"""A PostgreSQL of a run's own, so that it can be restarted."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.servers import (
    NO_SERVER,
    PostgresServer,
    _run,
    database_of,
    find_binaries,
    shared_server,
)


@dataclass(frozen=True)
class Cluster:
    """A running cluster and where it lives."""

    server: PostgresServer
    folder: Path
    binaries: Path

    def create(self) -> str:
        """Make a database whose commits outlive the server's processes; return its URL."""
        url = self.server.create()
        with psycopg.connect(url, autocommit=True) as connection:
            # The test servers answer before they write; here an answer must be kept.
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(
                    sql.Identifier(database_of(url))
                )
            )
        return url

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(conninfo_to_dict(self.server.url)["port"] or 0)

    def restart(self) -> None:
        """Kill the server where it stands and start it on the same port."""
        self.control("-l", str(self.folder / "log"), "-m", "immediate", "restart")

    def control(self, *words: str) -> None:
        """Run pg_ctl on the cluster and wait until it is done."""
        program: list[str | Path] = [self.binaries / "pg_ctl", "-w", "-D", self.folder / "data"]
        _run(self.folder, program, words).check_returncode()


@contextlib.contextmanager
def own_cluster(folder: Path, binaries: Path, source: str = "") -> Iterator[Cluster]:
    """Run a cluster that nobody else uses during the block; with a source, its standby."""
    folder.mkdir(parents=True, exist_ok=True)
    with shared_server(folder, binaries, source) as server:
        state = json.loads((folder / "postgres.json").read_text())
        yield Cluster(server, Path(state["folder"]), binaries)


@contextlib.contextmanager
def cluster_of_command(name: str) -> Iterator[tuple[Cluster, Path]]:
    """Run a cluster during a command, which ends with 1 if there is no PostgreSQL.

    Gives it with a temporary folder.
    """
    binaries = find_binaries()
    if binaries is None:
        sys.exit(NO_SERVER)
    with (
        tempfile.TemporaryDirectory(prefix=f"duly-{name}-", ignore_cleanup_errors=True) as folder,
        own_cluster(Path(folder, "server"), binaries) as cluster,
    ):
        yield cluster, Path(folder)


def cut_others(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Terminate every other connection to the database of this one."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
