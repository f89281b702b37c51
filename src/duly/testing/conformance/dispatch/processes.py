"""The conformance suite for ticks in several real processes, on the database's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.rules.dispatches import TICK_DIED
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import a_post
from duly.testing.conformance.index.processes import WAIT_LIMIT_S, Peer, PeerConformance, Peers
from duly.testing.conformance.jobs.peer import PLANNING
from duly.testing.conformance.planning.samples import only_occurrence, states
from duly.testing.conformance.samples import put
from duly.triggers import once

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
"""Earlier than the clock of any peer."""


class DispatchProcessConformance(PeerConformance):
    """The suite for ticks in several processes."""

    program = "duly.testing.conformance.dispatch.peer"

    def create(self, store: Store, clock: ManualClock, *names: str, **policies: Any) -> None:
        """Store schedules with a single time that is due for every peer."""
        clock.set(LONG_AGO)
        trigger = once(LONG_AGO + timedelta(hours=1))
        self.runner.run(put(store, *(a_post(name, trigger, **policies) for name in names)))

    def claim_until(self, peer: Peer, count: int) -> list[str]:
        """Claim until `count` rows have come: leases expire by the database's clock."""
        names: list[str] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(names) < count and time.monotonic() < deadline:
            claim_id = f"successor-{time.monotonic_ns()}"
            names += peer.ask("claim_dispatches", claim_id=claim_id, lease_ms=3_600_000)
        return names

    def test_processes_post_each_time_once(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        names = [f"{number:03}" for number in range(600)]
        self.create(store, clock, *names)
        ticks = peers(3)
        for number, peer in enumerate(ticks):
            peer.tell("post", claim_id=f"tick-{number}", limit=25)
        shares = [peer.hear() for peer in ticks]
        # A peer that finds all rows held by others stops early; claim what is left.
        shares.append(ticks[0].ask("post", claim_id="rest", limit=25))
        assert sorted(name for share in shares for name in share) == names
        assert self.runner.run(store.list_rows()) == []
        for name in names[::29]:
            assert self.runner.run(states(store, name)) == ["succeeded"]

    def test_killed_between_read_and_commit_takes_nothing(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        names = [f"{number}" for number in range(5)]
        self.create(store, clock, *names)
        victim, successor = peers(2)
        assert victim.ask("hold_plans") == "holding"
        said = victim.ask("claim_dispatches", claim_id="lost", limit=3)
        assert said == PLANNING, "the store does not call duly.rules.planning.plan_many()"
        victim.kill()
        assert sorted(self.claim_until(successor, len(names))) == names

    def test_killed_between_claim_and_post(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        """After a killed tick, at-least-once times are posted again and at-most-once times fail."""
        self.create(store, clock, "often", "often too")
        self.create(store, clock, "once", delivery="at_most_once")
        victim, successor = peers(2)
        taken = victim.ask("claim_dispatches", claim_id="lost", lease_ms=500)
        victim.kill()
        assert sorted(taken) == ["often", "often too", "once"]
        assert sorted(self.claim_until(successor, 2)) == ["often", "often too"]
        # The claim that returned those two also closed this one.
        occurrence = self.runner.run(only_occurrence(store, "once"))
        assert (occurrence.state.value, occurrence.reason) == ("failed", TICK_DIED)
        assert self.runner.run(states(store, "often")) == ["dispatching"]

    def test_lost_answer_is_asked_again_by_another_process(
        self, store: Store, clock: ManualClock, peers: Peers
    ) -> None:
        self.create(store, clock, "a", "b", "c")
        first, second = peers(2)
        taken = first.ask("claim_dispatches", claim_id="lost", limit=2, lease_ms=3_600_000)
        first.kill()
        asked = {"claim_id": "lost", "limit": 2}
        assert second.ask("claim_dispatches", **asked) == taken
        assert len(second.ask("claim_dispatches", claim_id="other")) == 1
