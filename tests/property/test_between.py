"""Tests that transactions between the reads and the commit of another one break no invariant."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from duly.engine.ids import ids_from
from duly.engine.kinds import KINDS, LOCK
from duly.engine.transaction import Tx
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.index import ReconcileReport
from duly.model.upkeep import LedgerRetention
from duly.testing import ManualClock
from duly.testing.between import BetweenStore, run
from duly.testing.invariants import Broken
from duly.testing.optimistic import AnswerLost, PortFaults, TooManyConflicts
from tests.property.between_cases import CASES, Case, meet
from tests.property.job_walk import JobWalk
from tests.property.plan_walk import PlanWalk
from tests.property.strategies import DEPTH

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEPS = 150
FAULTS = PortFaults(refused=0.05, stale=0.1, missing=0.05, lost=0.03)
REPEATABLE = frozenset({"insert", "finish", "cancel", "release_tokens", "start", "sweep", "lock"})
"""Verbs that a caller may repeat when the answer was lost."""


class InterleavedWalks:
    """Steps of two walks, some of them between the reads and the commit of another step."""

    def __init__(self, store: BetweenStore, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.taken: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._plans = PlanWalk(seed, clock, store)
        self._jobs = JobWalk(seed, clock)
        self._erasing: str | None = None
        store.other = self.act
        store.let_run = self._plans.retried

    def act(self) -> None:
        """Take one step. If its answer is lost, repeat it when that is allowed."""
        chance = self._chance.random()
        if chance < 0.05:
            self._ask("upkeep", self._keep_up)
        elif chance < 0.6:
            name, ask = run(self._plans.next())
            same = {job_id: job_id for job_id in self.store.tables.jobs}
            self._ask(name, lambda: self._plans.learn(run(ask(self.store, same))))
        else:
            name, step = self._jobs.next()
            self._ask(name.strip("_"), lambda: self._jobs.learn(run(step(self.store))))

    def _keep_up(self) -> None:
        """Take one step of upkeep."""
        store, limit = self.store, self._chance.choice((1, 3, 1_000))
        match self._chance.randrange(5):
            case 0:
                report = run(store.reconcile())
                assert report == ReconcileReport(report.checked), report
            case 1:
                run(store.prune_ledger(LedgerRetention(), limit))
            case 2:
                run(store.prune_schedules(LedgerRetention(), limit))
            case 3:
                run(store.recompute_zones("2026a", limit=limit))
            case _:
                erased = run(store.erase("workspace:acme", cursor=self._erasing, limit=limit))
                self._erasing = erased.cursor

    def _ask(self, name: str, ask: Callable[[], None]) -> None:
        self.taken[name] += 1
        try:
            ask()
        except AnswerLost:
            self.taken["lost"] += 1
            if name in REPEATABLE:
                self.taken["repeated"] += 1
                self._ask(name, ask)
        except TooManyConflicts:
            raise
        except (InvalidInput, BackendUnavailable):
            # Refused because time has passed since the step was drawn, or since it began.
            self.taken["refused"] += 1


def run_walks(seed: int, faults: PortFaults = FAULTS, steps: int = STEPS) -> Counter[str]:
    """Run both walks with checks. Return the number of steps and events by name."""
    clock = ManualClock(START)
    store = BetweenStore(clock, faults=faults, seed=seed)
    walks = InterleavedWalks(store, clock, seed)
    with ids_from(clock, random.Random(seed).randbytes):
        for _ in range(steps):
            store.step(walks.act)
    happened = {"between": store.between, "conflicts": store.in_vain}
    return walks.taken + Counter(happened)


@pytest.mark.parametrize("seed", range(10 * DEPTH))
def test_interleaved_walks_are_sound(seed: int) -> None:
    run_walks(seed)


@pytest.mark.parametrize("case", CASES, ids=[case.unchecked for case in CASES])
def test_interleaved_pairs_are_sound(case: Case) -> None:
    meet(case, unchecked="nothing")


@pytest.mark.planted("between")
@pytest.mark.parametrize("case", CASES, ids=[case.unchecked for case in CASES])
def test_a_kind_that_is_not_checked_is_noticed(case: Case) -> None:
    with pytest.raises(Broken) as caught:
        meet(case, unchecked=case.unchecked)
    assert caught.value.promise == case.promise


def test_every_kind_that_must_be_held_has_a_case() -> None:
    without = {"queue", "worker"}  # the last write wins
    covered = {case.unchecked for case in CASES} | without
    assert {kind.name for kind in KINDS} <= covered


def test_walks_have_conflicts_faults_and_repetitions() -> None:
    """The walks would prove nothing if these events did not happen."""
    taken = sum((run_walks(seed) for seed in range(3)), Counter[str]())
    assert min(taken[name] for name in ("between", "conflicts", "lost", "repeated")) > 3, taken


def test_walks_are_reproducible() -> None:
    assert run_walks(5) == run_walks(5)


def test_endless_conflicts_are_given_up() -> None:
    store = BetweenStore(ManualClock(START), faults=PortFaults(refused=1.0))
    with pytest.raises(TooManyConflicts):
        run(store.acquire_lock("keeper", "ada", 1_000))
    assert not store.tables.locks


def test_ids_stay_the_same_on_retry_of_a_transaction() -> None:
    store = BetweenStore(ManualClock(START))
    drawn: list[list[str]] = []

    def draw(tx: Tx) -> None:
        tx.get(LOCK, "keeper")
        drawn.append([*tx.new_ids("job_", 2), *tx.new_ids("sch_", 1), *tx.new_ids("job_", 1)])

    store.meet(
        lambda: store._transact(draw), lambda: run(store.acquire_lock("keeper", "ada", 1_000))
    )
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]
    assert [each[:4] for each in drawn[0]] == ["job_", "job_", "sch_", "job_"]
