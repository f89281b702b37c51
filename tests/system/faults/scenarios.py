"""What is done to workers and databases, each under load; the audit says what is left of it."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg

from duly.model.jobs import JobState
from duly.runtime.worker.watchdog import EXIT_STATUS
from duly.stores.sql.dialects.postgresql.dialect import PostgresqlDialect
from tests.system.application import POISONED
from tests.system.audit import Expected, judge
from tests.system.cluster import Cluster, cut_others
from tests.system.database import Database
from tests.system.faults.chaos import (
    crash_one,
    crash_repeatedly,
    exhaust_connections,
    kill_backends,
    restart_under_load,
)
from tests.system.faults.connections import (
    fail_over,
    fall_silent,
    freeze_connections,
    open_read_only,
    turn_read_only,
)
from tests.system.faults.losses import lose_twice, once_under_load, poison_backlog
from tests.system.faults.outcome import Outcome
from tests.system.faults.places import (
    OpenPlace,
    behind_proxy,
    in_any_session,
    on_file,
    on_pair,
    on_server,
)
from tests.system.faults.site import Load, Site
from tests.system.faults.sockets import exhaust_sockets
from tests.system.phases import PHASES

FAKETIME = "libfaketimeMT.so.1"
REFUSED = "completion refused, its lease was lost"
LEASE_S = 5.0
"""Where a connection hangs until its deadline, which is longer than the usual lease."""

RATE_SHARE = 0.8
"""Of the completion rate before a fault, least afterwards; judged in the long form."""
Do = Callable[[Site, Load, Cluster], int]
"""Does the faults; gives the number of jobs that must end dead."""


def kill_in_phase(phase: str, site: Site, load: Load, _: Cluster) -> int:
    """Workers are killed at one phase, one after another; the last one does the rest."""
    site.enqueue("quick", load.inputs())
    for skip in range(load.rounds):
        site.lose_at(phase, site.start(phase=phase, skip=str(skip)))
    site.start()
    site.note_fault_end(probes=True)
    return 0


def kill_at_most_once(site: Site, load: Load, _: Cluster) -> int:
    """Workers are killed inside handlers of a schedule whose action is declared at_most_once."""
    for number in range(load.rounds):
        victim = site.start(phase="running")
        site.schedule("once", f"once-{number}")
        site.lose_at("running", victim)
    site.find_jobs("once")
    site.start()
    site.note_fault_end(probes=True)
    return load.rounds


def restart_server(site: Site, load: Load, cluster: Cluster) -> int:
    """The database goes away under load, without a word, and comes back."""
    ids = site.enqueue("steady", [0.005] * load.jobs)
    site.start()
    site.start()
    for each in range(load.rounds):
        site.until_recorded("end", ids, len(ids) * (each + 1) // (load.rounds + 2))
        cluster.restart()
        site.note_fault_end()
    site.until_ended()
    site.note_fault_end(probes=True)
    return 0


def cut_connections(site: Site, load: Load, _: Cluster) -> int:
    """Every connection of the workers is cut, again and again."""
    ids = site.enqueue("steady", [0.005] * load.jobs)
    site.start()
    site.start()
    with psycopg.connect(site.url, autocommit=True) as connection:
        for each in range(load.rounds * 5):
            site.until_recorded("end", ids, len(ids) * each // (load.rounds * 5 + 1) + 1)
            cut_others(connection)
            site.note_fault_end()
    site.until_ended()
    site.note_fault_end(probes=True)
    return 0


def hang(site: Site, load: Load, _: Cluster) -> int:
    """Handlers that never return: one is cancelled, the other costs slots, then the worker."""
    site.enqueue("hang_async", [None] * load.rounds)
    site.enqueue("hang_sync", [None] * load.rounds)
    site.enqueue("quick", load.inputs())
    site.start(is_kept=True)
    site.until_ended()
    site.note_fault_end(probes=True)
    return 2 * load.rounds


def stop_and_wake(site: Site, load: Load, _: Cluster, planted: str = "") -> int:
    """A worker sleeps past its lease and wakes: others have done its jobs, its word is void."""
    held = site.enqueue("steady", [0.3] * 4, priority=1)
    site.enqueue("quick", load.inputs())
    sleeper = site.start(planted=planted)
    site.until_recorded("start", held, 4)
    site.freeze(sleeper)
    site.start(planted=planted)
    site.note_fault_end()
    site.until_ended()
    sleeper.signal(signal.SIGCONT)
    site.until(lambda: sleeper.has_logged(REFUSED) or bool(planted), "it is refused")
    for job_id in [] if planted else held:
        attempts = site.run(site.store.job_attempts(job_id))
        assert [attempt.status for attempt in attempts] == ["lost", "succeeded"]
    return 0


def block_loop(site: Site, load: Load, _: Cluster) -> int:
    """Async handlers block the event loop: their worker ends; then they block a child only."""
    site.enqueue("block", [None] * load.rounds, priority=1)
    site.enqueue("quick", load.inputs())
    site.start(is_kept=True)
    site.until_ended()
    ended = [each for each in site.started if each.popen.poll() == EXIT_STATUS]
    assert 1 <= len(ended) <= load.rounds, "each job ends its worker once at most"
    assert all(each.has_logged("blocks the event loop") for each in ended)
    site.note_fault_end(probes=True)
    return load.rounds


def kill_beside_suspects(site: Site, load: Load, _: Cluster) -> int:
    """Workers are killed while suspects run in their children: those are given back, uncharged."""
    suspects = site.enqueue("steady", [0.3] * 8, retry=POISONED)
    site.isolate(suspects)
    site.enqueue("steady", [0.01] * load.jobs)
    for number in range(load.rounds):
        victim = site.start()
        site.until_recorded("start", suspects, min(2 * (number + 1), 8))
        site.lose(victim)
    site.start()
    site.note_fault_end(probes=True)
    site.until_ended()
    for job in site.jobs(suspects):
        assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1), "it paid for its worker"
    return 0


def poison(site: Site, load: Load, _: Cluster) -> int:
    """Jobs that kill their worker end dead; those only claimed beside them pay nothing."""
    site.enqueue("quick", load.inputs(2), priority=2, retry=POISONED)
    poisoned = site.enqueue("poison", [None] * load.rounds, priority=1)
    site.enqueue("quick", load.inputs(2), retry=POISONED)
    site.start(is_kept=True)
    site.until_ended()
    runs = site.record.runs()
    for job in site.jobs(set(site.ids) - set(poisoned)):
        assert job.state is JobState.SUCCEEDED
        if site.slots == 1:
            assert job.attempts <= runs[job.id].starts.total(), "paid for what never began"
    # The poison jobs go first by priority, and they and their children occupy the few slots.
    site.in_front_until_ms = max(job.finished_at_ms or 0 for job in site.jobs(poisoned))
    site.note_fault_end(probes=True)
    return load.rounds


def skew_clocks(site: Site, load: Load, _: Cluster) -> int:
    """Two hosts whose clocks are two hours apart: only the database's decides."""
    site.enqueue("steady", [0.01] * load.jobs)
    later = site.enqueue("quick", [None] * 5, run_at=site.at(2.0))
    library = {"LD_PRELOAD": find_faketime() or "", "DONT_FAKE_MONOTONIC": "1"}
    for shift in ("+1h", "-1h"):
        site.start(environment=library | {"FAKETIME": shift})
    site.note_fault_end()
    site.until_ended()
    for job_id in site.ids:
        assert len(site.run(site.store.job_attempts(job_id))) == 1, "nobody's lease was taken"
    for job in site.jobs(later):
        events = site.run(site.store.job_events(job.id))
        # Far less than the clocks are apart; how long processes take to start is not the question.
        assert 0 <= events[2].at_ms - job.run_at_ms < 1_800_000
    return 0


def find_faketime() -> str | None:
    """The library that shifts a process's clock, where it is installed."""
    found = Path("/usr/lib").glob(f"*/faketime/{FAKETIME}")
    return next(map(str, found), None)


@dataclass(frozen=True)
class Scenario:
    """One line of the table."""

    name: str
    backend: str
    do: Do
    slots: int = 4
    place: OpenPlace | None = None
    """Where the database is; None: the usual place of the backend."""
    lease_s: float = 1.5
    long_lease_s: float | None = None
    """The lease of the long form, where it is another."""
    long_slots: int | None = None

    def sized(self, load: Load) -> "Scenario":
        """Return the scenario with the lease and the slots of a form."""
        if load.is_quick:
            return self
        lease_s, slots = self.long_lease_s or self.lease_s, self.long_slots or self.slots
        return replace(self, lease_s=lease_s, slots=slots)

    @property
    def where(self) -> OpenPlace:
        """Return where the database is."""
        usual = on_server if self.backend == PostgresqlDialect.name else on_file
        return usual if self.place is None else self.place

    @property
    def lacks(self) -> str | None:
        """What this machine has not that the scenario needs."""
        if self.do is skew_clocks and find_faketime() is None:
            return "no libfaketime: apt-get install faketime"
        return None


KILLS = [
    Scenario(f"killed {phase}, {backend}", backend, partial(kill_in_phase, phase))
    for backend in ("postgresql", "sqlite")
    for phase in PHASES
]
CHAOS = [
    Scenario(name, "postgresql", do, 32, lease_s=2.0, long_lease_s=15.0)
    for name, do in (
        ("postgres_restart", restart_under_load),
        ("pg_backend_kill", kill_backends),
        ("pool_exhaustion", exhaust_connections),
        ("crash_recovery", crash_one),
        ("repeated_kills", crash_repeatedly),
    )
]
SCENARIOS = [
    *KILLS,
    Scenario("scheduled at most once", "postgresql", kill_at_most_once),
    Scenario("scheduled at most once, sqlite", "sqlite", kill_at_most_once),
    Scenario("server restarted", "postgresql", restart_server),
    Scenario("connections cut", "postgresql", cut_connections),
    Scenario("handlers hang, postgresql", "postgresql", hang),
    Scenario("handlers hang, sqlite", "sqlite", hang),
    Scenario("stopped and woken, postgresql", "postgresql", stop_and_wake),
    Scenario("stopped and woken, sqlite", "sqlite", stop_and_wake),
    Scenario("blocked loop, postgresql", "postgresql", block_loop),
    Scenario("blocked loop, sqlite", "sqlite", block_loop),
    Scenario("killed beside suspects", "postgresql", kill_beside_suspects, slots=16),
    Scenario("poison, postgresql", "postgresql", poison, slots=1),
    Scenario("poison, sqlite", "sqlite", poison, slots=1),
    Scenario("poison among slots", "postgresql", poison),
    Scenario("clocks two hours apart", "postgresql", skew_clocks),
    Scenario("sockets exhausted", "postgresql", exhaust_sockets, lease_s=LEASE_S),
    Scenario("failover", "postgresql", fail_over, place=on_pair),
    Scenario("server read-only and back", "postgresql", turn_read_only),
    Scenario("read-only sessions", "postgresql", open_read_only, place=in_any_session),
    Scenario("half-open connections", "postgresql", freeze_connections, 4, behind_proxy, LEASE_S),
    Scenario("proxy accepts, never answers", "postgresql", fall_silent, 4, behind_proxy, LEASE_S),
    Scenario("poison under full load", "postgresql", poison_backlog, 8, long_slots=32),
    Scenario("two losses under full load", "postgresql", lose_twice, 8, long_slots=24),
    Scenario("at most once under full load", "postgresql", once_under_load, 8, long_slots=32),
    *CHAOS,
]


def run_scenario(
    scenario: Scenario, load: Load, cluster: Cluster, folder: Path, *, drains: bool = True
) -> Outcome:
    """Do it, wait until every job has ended, and judge."""
    began_s = time.monotonic()
    scenario = scenario.sized(load)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        scenario.where(cluster, folder) as place,
        Site(place, folder, slots=scenario.slots, lease_s=scenario.lease_s) as site,
    ):
        dead = scenario.do(site, load, cluster)
        site.until_ended()
        cpu = site.drain() if drains else None
        expected = Expected(site.ids, site.schedules, dead=dead)
        outcome = Outcome(scenario.name, judge(Database(site.url), expected, site.record), cpu)
    outcome.judge_recovery(site.fault_ends, scenario.lease_s, site.deaths, site.in_front_until_ms)
    if site.spans is not None:
        outcome.judge_rate(*site.spans, least=0.0 if load.is_quick else RATE_SHARE)
    outcome.seconds = time.monotonic() - began_s
    return outcome
