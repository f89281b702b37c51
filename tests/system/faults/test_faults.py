"""Every scenario in a short form, and planted faults in workers and in times.

Two scenarios are part of `make test`, all are part of `make test-all`; the long form is
`make test-faults`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.missing import missing_tool
from tests.servers import NO_SERVER, find_binaries
from tests.system.audit import Interruption, Verdict
from tests.system.cluster import Cluster, own_cluster
from tests.system.faults.losses import lose_twice
from tests.system.faults.outcome import Outcome, table
from tests.system.faults.scenarios import SCENARIOS, Scenario, run_scenario, stop_and_wake
from tests.system.faults.site import Load
from tests.system.processes import ROOT

SHORT = Load(jobs=60, rounds=1, is_quick=True)
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
    outcome = run_scenario(scenario, SHORT, cluster, tmp_path, drains=False)
    assert outcome.is_good, table([outcome])
    verdict = outcome.verdict
    assert verdict.finished + verdict.dead == verdict.enqueued


@pytest.mark.planted("faults")
def test_a_store_that_forgets_fences_is_caught(cluster: Cluster, tmp_path: Path) -> None:
    planted = Scenario("no fences", "postgresql", partial(stop_and_wake, planted="fence"))
    outcome = run_scenario(planted, SHORT, cluster, tmp_path)
    assert outcome.verdict.doubled > 0, table([outcome])
    assert any("numbers" in fault for fault in outcome.verdict.faults)


@pytest.mark.extended
@pytest.mark.planted("faults")
def test_a_store_that_charges_losses_is_caught(cluster: Cluster, tmp_path: Path) -> None:
    planted = Scenario("charged", "postgresql", partial(lose_twice, planted="loss"), slots=8)
    with pytest.raises(AssertionError, match="8 jobs paid for the loss of their worker"):
        run_scenario(planted, SHORT, cluster, tmp_path)


@pytest.mark.planted("faults")
def test_the_audit_times_recoveries() -> None:
    def timed(*fault_ends: int) -> Outcome:
        completed_at_ms = [900, 3_000, 14_000, 30_000]
        outcome = Outcome("planted", Verdict(completed_at_ms=completed_at_ms))
        outcome.judge_recovery(fault_ends, lease_s=1.5)
        return outcome

    assert (timed().recovery_s, timed().is_good) == (None, True)
    assert (timed(1_000, 2_500).recovery_s, timed(1_000).is_good) == (2.0, True)
    assert timed(1_000, 3_001).recovery_s == 10.999
    assert timed(3_001).is_good
    assert timed(14_001).verdict.faults == ["recovered after 16.0 s; limit: 11.5 s"]
    late = timed(1_000, 30_001)
    assert late.verdict.faults == ["no job was completed after the fault"]
    assert not late.is_good
    assert "wrong: planted: no job was completed" in table([late])


@pytest.mark.planted("faults")
def test_the_audit_times_when_interrupted_jobs_are_claimed_again() -> None:
    def timed(
        *interrupted: tuple[int, int, int], deaths: dict[str, int] | None = None, in_front: int = 0
    ) -> Outcome:
        lost = [Interruption("ada", *each) for each in interrupted]
        outcome = Outcome("planted", Verdict(completed_at_ms=[1_100], interrupted=lost))
        outcome.judge_recovery([1_000], 1.5, deaths, in_front)
        return outcome

    assert (timed().recovery_s, timed().limit_s) == (0.1, 11.5)
    assert timed((900, 900, 9_000), (1_500, 1_500, 8_000)).recovery_s == 8.0
    late = (900, 2_500, 20_000)
    assert timed(late).verdict.faults == ["recovered after 19.0 s; limit: 11.5 s"]
    assert timed((15_000, 15_000, 20_000)).recovery_s == 0.1, "no fault was near"
    assert timed(late, deaths={"bob": 2_000}).recovery_s == 19.0, "another worker died"
    assert timed(late, deaths={"ada": 950}).recovery_s == 19.05, "the clock starts at the death"
    assert timed(late, late, deaths={"ada": 12_000}).recovery_s == 8.0
    assert timed(late, deaths={"ada": 950}, in_front=18_000).recovery_s == 2.0
    slow = timed((900, 13_000, 20_000), deaths={"ada": 950}, in_front=18_000)
    assert slow.verdict.faults == ["recovered after 12.1 s; limit: 11.5 s"], "queued again too late"


@pytest.mark.planted("faults")
def test_the_audit_compares_rates() -> None:
    def compared(*completed_at_ms: int) -> Outcome:
        outcome = Outcome("planted", Verdict(completed_at_ms=list(completed_at_ms)))
        outcome.judge_rate((0, 1_000), (2_000, 4_000), least=0.8)
        return outcome

    assert compared(1, 2, 2_000, 2_001, 2_002, 3_999, 4_000).rate == 1.0
    assert compared(1, 2, 2_000, 3_999).verdict.faults == [
        "0.50 of the rate before the fault; least: 0.8"
    ]
    assert not compared(2_000).is_good, "nothing happened before"


def test_every_scenario_is_documented() -> None:
    page = (ROOT / "docs" / "internals" / "faults.md").read_text()
    for scenario in SCENARIOS:
        name = scenario.name.partition(", postgresql")[0].partition(", sqlite")[0]
        words = [name] if not name.startswith("killed ") else name.split()
        assert all(word in page for word in words), name
