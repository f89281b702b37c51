"""The conformance suite for jobs shared by several real processes, some of them killed."""

from __future__ import annotations

from duly.model.jobs import JobState
from duly.model.queues import JobCount
from duly.rules.outcomes import LEASE_EXPIRED
from duly.stores.port import Store
from duly.testing.conformance.index.processes import PeerConformance, Peers
from duly.testing.conformance.jobs.samples import a_job, insert, path, reasons, tries


class JobProcessConformance(PeerConformance):
    """The suite for jobs in several processes."""

    program = "duly.testing.conformance.jobs.peer"

    def test_processes_claim_each_job_once(self, store: Store, peers: Peers) -> None:
        names = [f"{number:04}" for number in range(2_000)]
        self.runner.run(insert(store, *(a_job(name) for name in names)))
        claimers = peers(3)
        for number, peer in enumerate(claimers):
            peer.tell("work", worker=f"w{number}", limit=40)
        shares = [peer.hear() for peer in claimers]
        assert sorted(name for share in shares for name in share) == names
        counts = self.runner.run(store.count_jobs())
        assert counts == [JobCount("default", JobState.SUCCEEDED, 2_000)]

    def test_processes_claim_each_job_once_by_tokens(self, store: Store, peers: Peers) -> None:
        jobs = [a_job(f"{number:03}", workspace=f"w{number % 20}") for number in range(300)]
        self.runner.run(insert(store, *jobs))
        claimers = peers(3)
        for number, peer in enumerate(claimers):
            peer.tell("work", worker=f"w{number}", limit=40, fair=True, tokens=3, token_batch=4)
        shares = [peer.hear() for peer in claimers]
        # A peer that finds all pairs held by others stops early; claim what is left.
        rest = claimers[0].ask("work", worker="rest", limit=40, fair=True)
        taken = [name for share in (*shares, rest) for name in share]
        assert sorted(taken) == sorted(job.id for job in jobs)

    def test_killed_holder_loses_its_jobs(self, store: Store, peers: Peers) -> None:
        self.runner.run(insert(store, a_job("a")))
        victim, successor = peers(2)
        assert victim.ask("claim_jobs", worker="victim", lease_ms=1) == ["a"]
        victim.kill()
        taken: list[str] = []
        while not taken:
            taken = successor.ask("work", worker="successor")
        assert taken == ["a"]
        assert self.runner.run(tries(store)) == [(1, "lost"), (2, "succeeded")]
        assert LEASE_EXPIRED in self.runner.run(reasons(store))
        assert self.runner.run(path(store))[-1] == "succeeded"
