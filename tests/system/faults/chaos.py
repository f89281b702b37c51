"""Five chaos scenarios under a steady load: restarts, cut connections, no connections, kills.

Each has a baseline, a fault and a recovery, measured in jobs that are enqueued at a fixed rate. The
audit compares the rate of completions after the fault with the rate before it.
"""

import contextlib
import threading
from collections.abc import Iterator

import psycopg

from tests.system.cluster import Cluster, cut_others
from tests.system.faults.producer import Producer, at_rate
from tests.system.faults.site import Load, Site
from tests.system.processes import Process, now_ms

JOBS_PER_S = 200
HANDLER_S = 0.05
"""As long as the pause between two batches of jobs: something always runs."""
BASELINE, FAULT, RECOVERY = 2, 2, 5
"""Phases, in multiples of the jobs of a scenario: 10 s, 10 s and 25 s of 1,000."""
KILLS_PER_S = 2
CONNECTIONS = 300
RETRY_S = 0.02
CUT_ONE = (
    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend' ORDER BY random() LIMIT 1) AS chosen"
)


class Phases:
    """The course of one scenario."""

    def __init__(self, site: Site, load: Load, producer: Producer) -> None:
        self._site = site
        self._load = load
        self._producer = producer
        self._began_ms = self._struck_ms = 0

    def until_baseline(self) -> None:
        """Wait until the load has gone on for a while before the fault."""
        jobs = self._load.jobs * BASELINE
        producer = self._producer
        # Not from the first job on: what waits until processes have started is done faster.
        self._site.until(
            lambda: len(producer.ids) > jobs // 2 and producer.count_waiting() < JOBS_PER_S // 4,
            "workers keep up with the load",
        )
        self._began_ms = now_ms()
        producer.until_enqueued(len(producer.ids) + jobs)
        self._struck_ms = now_ms()
        self._enqueued = len(self._producer.ids)

    def until_fault(self, share: float) -> None:
        """Wait until a share of the jobs of the fault's phase is enqueued."""
        self._producer.until_enqueued(self._enqueued + int(self._load.jobs * FAULT * share))

    def recover(self) -> None:
        """Wait until the load has gone on for a while after the fault."""
        self._site.note_fault_end()
        ended_ms = now_ms()
        self._producer.until_enqueued(len(self._producer.ids) + self._load.jobs * RECOVERY)
        self._site.spans = (self._began_ms, self._struck_ms), (ended_ms, now_ms())


@contextlib.contextmanager
def _under_load(site: Site, load: Load, replicas: int) -> Iterator[Phases]:
    for _ in range(replicas):
        site.start(is_kept=True)
    with Producer(site, at_rate(JOBS_PER_S), handler_s=HANDLER_S) as producer:
        phases = Phases(site, load, producer)
        phases.until_baseline()
        yield phases


def restart_under_load(site: Site, load: Load, cluster: Cluster) -> int:
    """`postgres_restart`: the server is killed and started again."""
    with _under_load(site, load, 1) as phases:
        cluster.restart()
        phases.recover()
    return 0


def kill_backends(site: Site, load: Load, _: Cluster) -> int:
    """`pg_backend_kill`: two connections are cut every second."""
    kills = max(2, load.jobs * FAULT * KILLS_PER_S // JOBS_PER_S)
    with (
        _under_load(site, load, 1) as phases,
        psycopg.connect(site.url, autocommit=True) as connection,
    ):
        for number in range(kills):
            phases.until_fault(number / kills)
            connection.execute(CUT_ONE)
        phases.recover()
    return 0


def exhaust_connections(site: Site, load: Load, cluster: Cluster) -> int:
    """`pool_exhaustion`: others ask for 300 connections and get all that the server has.

    Those of the workers are cut, so that they need new ones and find none.
    """
    with (
        _under_load(site, load, 1) as phases,
        psycopg.connect(site.url, autocommit=True) as connection,
    ):
        with _hog(cluster, CONNECTIONS) as is_full:
            site.until(is_full.is_set, "the server has no connection left")
            cut_others(connection)
            site.until_logged("too many clients")
        phases.recover()
    return 0


def crash_one(site: Site, load: Load, _: Cluster) -> int:
    """`crash_recovery`: one of two replicas is killed."""
    with _under_load(site, load, 2) as phases:
        site.lose(_living(site)[0])
        phases.recover()
    return 0


def crash_repeatedly(site: Site, load: Load, _: Cluster) -> int:
    """`repeated_kills`: the older of two replicas is killed, again and again."""
    kills = 2 * load.rounds
    with _under_load(site, load, 2) as phases:
        for number in range(kills):
            phases.until_fault(number / kills)
            site.lose(_living(site)[0])
            if number < kills - 1:
                site.note_fault_end()
        phases.recover()
    return 0


def _living(site: Site) -> list[Process]:
    site.until(lambda: len(site.running) >= 2, "two run")
    return site.running


@contextlib.contextmanager
def _hog(cluster: Cluster, connections: int) -> Iterator[threading.Event]:
    """Hold connections until the end of the block, and take every one that falls free."""
    stopping, is_full = threading.Event(), threading.Event()
    held: list[psycopg.Connection[tuple[object, ...]]] = []

    def take() -> None:
        while not stopping.is_set():
            try:
                if len(held) < connections:
                    held.append(psycopg.connect(cluster.server.url))
                    continue
            except psycopg.OperationalError:
                is_full.set()
            stopping.wait(RETRY_S)

    thread = threading.Thread(target=take, name="hog")
    thread.start()
    try:
        yield is_full
    finally:
        stopping.set()
        thread.join()
        for each in held:
            each.close()
