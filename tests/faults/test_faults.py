"""Every scenario in a short form, and proof that the audit sees what it looks for.

Two scenarios are part of `make test`, all are part of `make test-all`; the long form is
`make test-faults`.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from duly.jobs import JobId, JobState
from duly.stores import MemoryStore
from duly.testing.conformance.job_samples import a_job, bring_to
from tests.faults.audit import Verdict, fault_of_history, judge, judge_recovery, table
from tests.faults.scenarios import SCENARIOS, Load, Scenario, run_scenario, stop_and_wake
from tests.faults.servers import Cluster, own_cluster
from tests.missing import missing_tool
from tests.servers import NO_SERVER, find_binaries

SHORT = Load(jobs=60, rounds=1)
USUAL = {"killed finishing, postgresql", "killed finishing, sqlite"}
"""Scenarios that `make test` runs; all others are left to `make test-all`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that only these tests restart."""
    binaries = find_binaries()
    if binaries is None:
        missing_tool(NO_SERVER)
    with own_cluster(tmp_path_factory.mktemp("faults"), binaries) as started:
        yield started


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(each, marks=() if each.name in USUAL else pytest.mark.extended)
        for each in SCENARIOS
    ],
    ids=lambda scenario: scenario.name.replace(" ", "_"),
)
def test_nothing_is_lost_or_done_twice(
    scenario: Scenario, cluster: Cluster, tmp_path: Path
) -> None:
    if scenario.lacks is not None:
        missing_tool(scenario.lacks)
    verdict = run_scenario(scenario, SHORT, cluster, tmp_path, drains=False)
    assert verdict.is_good, table([verdict])
    assert verdict.finished + verdict.dead == verdict.enqueued


@pytest.mark.planted("faults")
def test_a_store_that_forgets_fences_is_caught(cluster: Cluster, tmp_path: Path) -> None:
    planted = Scenario("no fences", "postgresql", partial(stop_and_wake, planted="fence"))
    verdict = run_scenario(planted, SHORT, cluster, tmp_path)
    assert verdict.doubled > 0, table([verdict])
    assert any("numbers" in fault for fault in verdict.faults)


def judged(journal: Path, *lines: str, ids: tuple[str, ...] = ("a",)) -> Verdict:
    """What the audit says of one job that succeeded and one that is queued."""
    journal.write_text("".join(f"{line} 7\n" for line in lines))

    async def look() -> Verdict:
        store = MemoryStore()
        await bring_to(store, JobState.SUCCEEDED, "a")
        await store.insert_jobs([a_job("b")])
        return await judge(store, "planted", [JobId(each) for each in ids], 0, journal)

    return asyncio.run(look())


@pytest.mark.planted("faults")
def test_the_audit_counts_what_is_lost_and_doubled(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    good = ("a 1 start", "a 1 end")
    assert judged(journal, *good).is_good
    assert judged(journal, "a 1 start").lost == 1, "stored as done, but no handler ended"
    assert judged(journal, *good, ids=("a", "b", "gone")).lost == 2
    assert judged(journal, *good, "a 1 start").doubled == 1
    assert "fences {9}" in judged(journal, *good, "a 9 start").faults[0]


@pytest.mark.planted("faults")
def test_the_audit_times_recoveries() -> None:
    def timed(*fault_ends: int) -> Verdict:
        verdict = Verdict("planted", completed_at_ms=[900, 3_000, 14_000, 30_000])
        judge_recovery(verdict, fault_ends, lease_s=1.5)
        return verdict

    assert (timed().recovery_s, timed().is_good) == (None, True)
    assert (timed(1_000, 2_500).recovery_s, timed(1_000).is_good) == (2.0, True)
    assert timed(1_000, 3_001).recovery_s == 10.999
    assert timed(3_001).is_good
    assert timed(14_001).faults == ["recovered after 16.0 s; limit: 11.5 s"]
    assert timed(1_000, 30_001).faults == ["no job was completed after the fault"]


@pytest.mark.planted("faults")
def test_the_audit_reads_histories() -> None:
    async def look() -> tuple[str | None, ...]:
        store = MemoryStore()
        job = await bring_to(store, JobState.SUCCEEDED, "a")
        events = await store.job_events(job.id)
        illegal = [*events[:1], events[1]._replace(state=JobState.RETRYING), *events[2:]]
        other = [*events[:-1], events[-1]._replace(state=JobState.DEAD)]
        return tuple(fault_of_history(job, each) for each in (events, events[1:], illegal, other))

    right, gap, illegal, other = asyncio.run(look())
    assert right is None
    assert gap == "numbers [2, 3] of 3 events"
    assert illegal == "went queued -> retrying, retrying -> succeeded"
    assert other == "begins queued, ends dead, is succeeded"
