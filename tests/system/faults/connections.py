"""What is done to the connections of workers: failover, read-only servers, silence."""

from typing import Any

import psycopg
from psycopg import sql

from tests.servers import database_of
from tests.system.cluster import Cluster, cut_others
from tests.system.faults.site import Load, Site

WORKERS = 2
BUSY_S = 6.0
"""How long the jobs of a scenario keep its workers busy, whatever their number."""


def fail_over(site: Site, load: Load, _: Cluster) -> int:
    """The primary is fenced; workers meet the standby, still read-only; then it is promoted."""
    proxy, pair = site.place.proxy, site.place.pair
    assert proxy is not None
    assert pair is not None
    _busy(site, load)
    pair.fence()
    proxy.point_to(pair.standby.port)
    site.until_logged("session is read-only")
    pair.promote()
    site.note_fault_end()
    return 0


def turn_read_only(site: Site, load: Load, cluster: Cluster) -> int:
    """The server refuses writes on every connection for a while."""
    _busy(site, load)
    with psycopg.connect(cluster.server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        site.until_logged("read-only transaction")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        connection.execute("SELECT pg_reload_conf()")
    site.note_fault_end()
    return 0


def open_read_only(site: Site, load: Load, _: Cluster) -> int:
    """Connections are cut, and those opened for a while are read-only for as long as they live."""
    _busy(site, load, connections="1")  # so that no worker has a better one
    name = sql.Identifier(database_of(site.url))
    with psycopg.connect(site.url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name)
        )
        cut_others(connection)
        site.until_logged("read-only transaction")
        connection.execute(
            sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name)
        )
    site.note_fault_end()
    return 0


def freeze_connections(site: Site, load: Load, _: Cluster) -> int:
    """Connections that are open carry nothing any more; new ones work."""
    assert site.place.proxy is not None
    _busy(site, load)
    site.place.proxy.freeze()
    _until_idle(site)
    site.note_fault_end()
    return 0


def fall_silent(site: Site, load: Load, _: Cluster) -> int:
    """The same, and for a while new connections are accepted and never answered."""
    assert site.place.proxy is not None
    _busy(site, load)
    site.place.proxy.fall_silent()
    site.until_logged("connection timeout expired")
    site.place.proxy.answer()
    site.note_fault_end()
    return 0


def _busy(site: Site, load: Load, **told: Any) -> None:
    """Start workers, and wait until they have done a third of their jobs."""
    seconds = BUSY_S * WORKERS * site.slots / load.jobs
    ids = site.enqueue("steady", [seconds] * load.jobs)
    for _ in range(WORKERS):
        site.start(**told)
    site.until_recorded("end", ids, load.jobs // 3)


def _until_idle(site: Site) -> None:
    """Wait until the server has done what reached it: later work came by new connections."""
    with psycopg.connect(site.url, autocommit=True) as connection:
        site.until(
            lambda: (
                connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND state = 'active' AND pid <> pg_backend_pid()"
                ).fetchone()
                == (0,)
            ),
            "the server has nothing to do",
        )
