"""How the database of a scenario is reached: directly, through a proxy, on a replicated pair."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.system.cluster import Cluster
from tests.system.faults.proxy import Proxy
from tests.system.faults.replica import Pair, own_pair


@dataclass(frozen=True)
class Place:
    """One database, and how it is reached."""

    url: str
    """For the test itself."""
    worker_url: str
    proxy: Proxy | None = None
    pair: Pair | None = None


OpenPlace = Callable[[Cluster, Path], AbstractContextManager[Place]]


@contextlib.contextmanager
def on_file(_: Cluster, folder: Path) -> Iterator[Place]:
    """A SQLite file."""
    url = f"sqlite:///{folder}/fault.db"
    yield Place(url, url)


@contextlib.contextmanager
def on_server(cluster: Cluster, _: Path) -> Iterator[Place]:
    """A database of the run's server."""
    url = cluster.create()
    yield Place(url, url)


@contextlib.contextmanager
def in_any_session(cluster: Cluster, _: Path) -> Iterator[Place]:
    """The same, for workers that do not refuse read-only sessions when they connect."""
    url = cluster.create()
    yield Place(url, f"{url}?target_session_attrs=any")


@contextlib.contextmanager
def behind_proxy(cluster: Cluster, _: Path) -> Iterator[Place]:
    """The same, which workers reach through a proxy only."""
    url = cluster.create()
    with Proxy(cluster.port) as proxy:
        yield Place(url, proxy.url(url), proxy)


@contextlib.contextmanager
def on_pair(cluster: Cluster, folder: Path) -> Iterator[Place]:
    """A database on a primary with a standby, reached through a proxy by everybody."""
    with (
        own_pair(folder / "servers", cluster.binaries) as pair,
        Proxy(pair.primary.port) as proxy,
    ):
        url = proxy.url(pair.primary.create())
        yield Place(url, url, proxy, pair)
