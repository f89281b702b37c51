"""The suite of planning by several processes: real ones, by the database's own clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from duly.model.jobs import JobState
from duly.model.queues import JobCount
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.index.processes import PATIENCE_S, PeerConformance, Peers
from duly.testing.conformance.jobs.peer import PLANNING
from duly.testing.conformance.planning.samples import jobs_of, only_occurrence
from duly.testing.conformance.samples import a_definition, a_write, put
from duly.triggers import once

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Before every clock that a peer may have."""


class PlanProcessConformance(PeerConformance):
    """What holds for planning between processes."""

    program = "duly.testing.conformance.jobs.peer"

    def create(self, store: Store, clock: ManualClock, *names: str) -> None:
        """Schedules of one time that has come for every peer."""
        clock.set(LONG_AGO)
        definition = a_definition(once(LONG_AGO + timedelta(hours=1)))
        self.runner.run(put(store, *(a_write(name, definition) for name in names)))

    def test_killed_between_read_and_commit_plans_nothing(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        """Its rows stay due, and whoever comes next makes one job of each."""
        names = [f"{number}" for number in range(5)]
        self.create(store, clock, *names)
        victim, successor = peers(2)
        assert victim.ask("hold_plans") == "holding"
        said = victim.ask("plan", limit=3)
        assert said == PLANNING, "the store does not ask duly.rules.planning.plan_many()"
        victim.kill()
        made, deadline = 0, time.monotonic() + PATIENCE_S
        while made < len(names) and time.monotonic() < deadline:
            made += successor.ask("plan", limit=3)
        assert made == len(names)
        for name in names:
            (job,) = self.runner.run(jobs_of(store, name))
            assert self.runner.run(only_occurrence(store, name)).job_id == job.id

    def test_processes_plan_each_time_once(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        names = [f"{number:03}" for number in range(600)]
        self.create(store, clock, *names)
        planners = peers(3)
        for peer in planners:
            peer.tell("plan", limit=25)
        shares = [peer.hear() for peer in planners]
        # Who finds every row held by the others stops early: the rest is the last one's.
        rest = planners[0].ask("plan", limit=25)
        assert sum(shares) + rest == len(names)
        assert self.runner.run(store.list_rows()) == []
        counts = self.runner.run(store.count_jobs())
        assert counts == [JobCount("default", JobState.QUEUED, len(names))]
        for name in names[::29]:
            (job,) = self.runner.run(jobs_of(store, name))
            assert self.runner.run(only_occurrence(store, name)).job_id == job.id
