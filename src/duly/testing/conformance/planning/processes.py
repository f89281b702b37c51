"""The conformance suite for planning in several real processes, on the database's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from duly.model.jobs import JobState
from duly.model.queues import JobCount
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.index.processes import WAIT_LIMIT_S, PeerConformance, Peers
from duly.testing.conformance.jobs.peer import PLANNING
from duly.testing.conformance.planning.samples import jobs_of, only_occurrence
from duly.testing.conformance.samples import a_definition, a_write, put
from duly.triggers import once

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Earlier than the clock of any peer."""


class PlanProcessConformance(PeerConformance):
    """The suite for planning in several processes."""

    program = "duly.testing.conformance.jobs.peer"

    def create(self, store: Store, clock: ManualClock, *names: str) -> None:
        """Store schedules with a single time that is due for every peer."""
        clock.set(LONG_AGO)
        definition = a_definition(once(LONG_AGO + timedelta(hours=1)))
        self.runner.run(put(store, *(a_write(name, definition) for name in names)))

    def test_killed_between_read_and_commit_plans_nothing(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        """Rows of a planner killed before its commit stay due; the next planner plans each once."""
        names = [f"{number}" for number in range(5)]
        self.create(store, clock, *names)
        victim, successor = peers(2)
        assert victim.ask("hold_plans") == "holding"
        said = victim.ask("plan", limit=3)
        assert said == PLANNING, "the store does not call duly.rules.planning.plan_many()"
        victim.kill()
        made, deadline = 0, time.monotonic() + WAIT_LIMIT_S
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
        # A peer that finds all rows held by others stops early; plan what is left.
        rest = planners[0].ask("plan", limit=25)
        assert sum(shares) + rest == len(names)
        assert self.runner.run(store.list_rows()) == []
        counts = self.runner.run(store.count_jobs())
        assert counts == [JobCount("default", JobState.QUEUED, len(names))]
        for name in names[::29]:
            (job,) = self.runner.run(jobs_of(store, name))
            assert self.runner.run(only_occurrence(store, name)).job_id == job.id
