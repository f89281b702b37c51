"""A primary and its synchronous standby on the loopback, for failover."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.system.cluster import Cluster, own_cluster

SYNC_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True)
class Pair:
    """Two servers; every commit of the primary waits for the standby."""

    primary: Cluster
    standby: Cluster

    def fence(self) -> None:
        """Stop the primary where it stands: nobody can write to it any more."""
        self.primary.control("-m", "immediate", "stop")

    def promote(self) -> None:
        """Make the standby the primary."""
        self.standby.control("promote")


@contextlib.contextmanager
def own_pair(folder: Path, binaries: Path) -> Iterator[Pair]:
    """Start both, and wait until the standby is synchronous."""
    with (
        own_cluster(folder / "primary", binaries) as primary,
        own_cluster(folder / "standby", binaries, primary.server.url) as standby,
    ):
        with psycopg.connect(primary.server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            _until_synchronous(connection)
        yield Pair(primary, standby)


def _until_synchronous(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    pause = threading.Event()
    for _ in range(round(SYNC_S / POLL_S)):
        found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        if found == [("sync",)]:
            return
        pause.wait(POLL_S)
    raise TimeoutError(f"the standby is not synchronous after {SYNC_S:g} s")
