"""The suites can fail: each backend here has one bug, and a named case notices it."""

import asyncio
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from duly.model import schedules
from duly.model.documents import Document, DocumentWrite, Refused, Written
from duly.model.index import CLAIM_LIMIT, MAX_CLAIM, IndexHealth, ReconcileReport
from duly.model.index_rows import Claimed, IndexRow, index_row, trigger_of
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule, ScheduleId
from duly.rules import edits
from duly.stores import MemoryStore
from duly.stores.memory.tables import schedule_key
from duly.testing import ManualClock
from duly.testing.conformance import (
    DocumentConformance,
    IndexConformance,
    ScheduleConformance,
    StoreConformance,
    StoreIndexConformance,
)
from duly.testing.conformance.suite import START
from tests.conformance.broken_arguments import BROKEN_ARGUMENTS
from tests.conformance.broken_dispatches import BROKEN_DISPATCHES
from tests.conformance.broken_fairness import BROKEN_FAIRNESS
from tests.conformance.broken_finished import BROKEN_FINISHED
from tests.conformance.broken_jobs import BROKEN_JOBS
from tests.conformance.broken_monitoring import BROKEN_MONITORING
from tests.conformance.broken_overlap import BROKEN_OVERLAP
from tests.conformance.broken_planning import BROKEN_PLANNING
from tests.conformance.broken_reads import BROKEN_READS
from tests.conformance.broken_runs import BROKEN_RUNS
from tests.conformance.broken_starts import BROKEN_STARTS
from tests.conformance.broken_upkeep import BROKEN_UPKEEP

FAILURES = (AssertionError, ValueError, pytest.fail.Exception)
"""Exceptions of a failing case; unpacking a wrong number of rows raises ValueError."""


@dataclass(frozen=True)
class Question:
    """The arguments of a claim."""

    now_ms: int | None
    limit: int
    flow: str | None
    claim_id: str | None


class BrokenClaims(MemoryStore):
    """Base of stores that change the arguments or the answer of a claim."""

    before: dict[ScheduleKey, IndexRow]
    """The rows before the claim."""

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        asked = self.ask(Question(now_ms, limit, flow, claim_id))
        self.before = dict(self._tables.rows)
        claimed = await super().claim_due(asked.now_ms, asked.limit, asked.flow, asked.claim_id)
        return self.answer(claimed)

    def ask(self, question: Question) -> Question:
        return question

    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        return claimed


class DoesNotAdvance(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        self._tables.rows = self.before
        return claimed


class AnswersTwice(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        return [*claimed, *claimed]


class ClaimsFlowByFlow(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        return sorted(claimed, key=lambda each: each.flow)


class AnswersWithTheNextTime(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        times = {row.schedule_id: row.nominal_ms for row in self._tables.rows.values()}
        return [
            each._replace(nominal_ms=times.get(each.schedule_id, each.nominal_ms))
            for each in claimed
        ]


class AdvancesByOneStep(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        fired = {each.schedule_id: each.nominal_ms for each in claimed}
        for key, row in self._tables.rows.items():
            if row.schedule_id in fired:
                step = trigger_of(row.trigger).next_after_ms(fired[row.schedule_id])
                assert step is not None
                self._tables.rows[key] = replace(row, nominal_ms=step, run_at_ms=step)
        return claimed


class HidesWhatWasMissed(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        return [each._replace(missed=0) for each in claimed]


class LeavesBadRowsDue(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        self._tables.errors.clear()
        return claimed


class DropsBadRows(BrokenClaims):
    def answer(self, claimed: list[Claimed]) -> list[Claimed]:
        for key in list(self._tables.errors):
            self._tables.drop_row(key)
        return claimed


class IgnoresLimits(BrokenClaims):
    def ask(self, question: Question) -> Question:
        return replace(question, limit=MAX_CLAIM)


class DueIsExclusive(BrokenClaims):
    def ask(self, question: Question) -> Question:
        now_ms = question.now_ms
        return replace(question, now_ms=None if now_ms is None else now_ms - 1)


class IgnoresTheCallersTime(BrokenClaims):
    def ask(self, question: Question) -> Question:
        return replace(question, now_ms=None)


class IgnoresFlows(BrokenClaims):
    def ask(self, question: Question) -> Question:
        return replace(question, flow=None)


class ForgetsClaimIds(BrokenClaims):
    def ask(self, question: Question) -> Question:
        return replace(question, claim_id=None)


class ParsesWhatItStores(MemoryStore):
    async def upsert(self, row: IndexRow) -> None:
        trigger_of(row.trigger)
        await super().upsert(row)


class SetsRowsBack(MemoryStore):
    async def upsert(self, row: IndexRow) -> None:
        await self.remove(ScheduleKey(row.flow, row.scope, row.name))
        await super().upsert(row)


class KeepsTheFirstWrite(MemoryStore):
    async def upsert(self, row: IndexRow) -> None:
        if ScheduleKey(row.flow, row.scope, row.name) not in self._tables.rows:
            await super().upsert(row)


class KnowsEveryTriggerVersion(MemoryStore):
    async def upsert(self, row: IndexRow) -> None:
        await super().upsert(replace(row, trigger_version=1))


class IgnoresZones(MemoryStore):
    async def upsert(self, row: IndexRow) -> None:
        rule = json.loads(row.trigger) if row.trigger.startswith("{") else {}
        rule.pop("tz", None)
        await super().upsert(replace(row, trigger=json.dumps(rule)))


class RemovesTheScope(MemoryStore):
    async def remove(self, key: ScheduleKey) -> None:
        for each in list(self._tables.rows):
            if each.scope == key.scope:
                await super().remove(each)


class IgnoresVersions(MemoryStore):
    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        return await super().put_document(replace(write, expected_version=None))


class KeepsOldEntries(MemoryStore):
    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        stored = self._tables.documents.get((write.collection, write.scope, write.name))
        kept = () if stored is None else stored.entries
        return await super().put_document(replace(write, entries=(*kept, *write.entries)))


class FindsInOtherCollections(MemoryStore):
    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        found = await super().find_documents(collection, attribute, value, limit)
        return [*found, *await super().find_documents("notes", attribute, value, limit)]


class EveryEditMovesTheRow(MemoryStore):
    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        answers = await super().put_schedules(writes)
        now_ms = await self.now_ms()
        for answer in answers:
            if isinstance(answer, ScheduleWritten) and answer.row is not None:
                row = index_row(answer.schedule, now_ms)
                await self.remove(ScheduleKey(answer.row.flow, answer.row.scope, answer.row.name))
                if row is not None:
                    await self.upsert(row)
        return answers


class IndexesThePaused(MemoryStore):
    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        answers = await super().put_schedules(writes)
        for answer in answers:
            if isinstance(answer, ScheduleWritten) and answer.row is None:
                row = index_row(replace(answer.schedule, state="active"), await self.now_ms())
                assert row is not None
                await self.upsert(row)
        return answers


class WritesBatchesInPieces(MemoryStore):
    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        answers: list[ScheduleWritten | Refused] = []
        for write in writes:
            answers += await super().put_schedules([write])
        return answers


class LeavesRowsBehind(MemoryStore):
    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        row = self._tables.rows.get(key)
        answer = await super().delete_schedule(key, expected_version=expected_version, by=by)
        if row is not None:
            await self.upsert(row)
        return answer


class ForgetsEvents(MemoryStore):
    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        return (await super().schedule_events(schedule_id, limit))[-1:]


class RepairsNothing(MemoryStore):
    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        del flows
        return ReconcileReport(len(self._tables.schedules()))


class RepairsFromNowOn(MemoryStore):
    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        report = await super().reconcile(flows)
        for schedule in self._tables.schedules():
            row = index_row(schedule, await self.now_ms())
            if row is not None:
                self._tables.put_row(row)
        return report


class RepairsOtherFlows(MemoryStore):
    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        report = await super().reconcile(flows)
        stored = {schedule_key(each).flow for each in self._tables.schedules()}
        for key in [key for key in self._tables.rows if key.flow not in stored]:
            self._tables.drop_row(key)
        return report


class RemovesRowsOfCallers(MemoryStore):
    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        report = await super().reconcile(flows)
        stored = {schedule_key(each) for each in self._tables.schedules()}
        for key in [key for key in self._tables.rows if key not in stored]:
            self._tables.drop_row(key)
        return report


class AcceptsOnceInThePast(MemoryStore):
    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schedules, "_check_once", lambda *_: None)
            return await super().put_schedules(writes)


class LosesRecentOnce(MemoryStore):
    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(edits, "first_after_ms", lambda _, now_ms: now_ms)
            return await super().put_schedules(writes)


class AlwaysReportsHealthy(MemoryStore):
    async def index_health(self) -> IndexHealth:
        return replace(await super().index_health(), missing=0, quarantined=0)


BROKEN: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (DoesNotAdvance, IndexConformance, "test_second_claim_is_empty"),
    (AnswersTwice, IndexConformance, "test_limit_is_kept"),
    (ClaimsFlowByFlow, IndexConformance, "test_order_holds_across_flows_and_hand_overs"),
    (AnswersWithTheNextTime, IndexConformance, "test_claims_tell_what_fired"),
    (AdvancesByOneStep, IndexConformance, "test_caller_ahead_of_the_store_claims_once"),
    (HidesWhatWasMissed, IndexConformance, "test_missed_times_are_counted"),
    (LeavesBadRowsDue, StoreIndexConformance, "test_bad_row_is_kept_with_its_error"),
    (DropsBadRows, StoreIndexConformance, "test_bad_row_is_kept_with_its_error"),
    (IgnoresLimits, IndexConformance, "test_limit_is_a_hundred_unless_told"),
    (DueIsExclusive, IndexConformance, "test_due_is_inclusive"),
    (IgnoresTheCallersTime, IndexConformance, "test_caller_behind_the_store_claims_nothing_new"),
    (IgnoresFlows, IndexConformance, "test_flows_are_claimed_apart"),
    (ForgetsClaimIds, IndexConformance, "test_finished_rows_are_answered_again"),
    (ParsesWhatItStores, IndexConformance, "test_upsert_asks_no_parser"),
    (SetsRowsBack, IndexConformance, "test_slow_writer_causes_no_second_fire"),
    (KeepsTheFirstWrite, IndexConformance, "test_last_write_wins"),
    (KnowsEveryTriggerVersion, IndexConformance, "test_newer_trigger_versions_are_left_alone"),
    (IgnoresZones, IndexConformance, "test_wall_time_is_kept_in_spring"),
    (RemovesTheScope, IndexConformance, "test_remove_takes_one_row_away"),
    (IgnoresVersions, DocumentConformance, "test_compare_and_set"),
    (KeepsOldEntries, DocumentConformance, "test_attributes_gone_find_nothing"),
    (
        FindsInOtherCollections,
        DocumentConformance,
        "test_attributes_find_documents_of_any_scope",
    ),
    (EveryEditMovesTheRow, ScheduleConformance, "test_words_leave_the_hand_alone"),
    (IndexesThePaused, ScheduleConformance, "test_index_holds_the_active_few"),
    (WritesBatchesInPieces, ScheduleConformance, "test_invalid_write_stops_all"),
    (
        LeavesRowsBehind,
        ScheduleConformance,
        "test_delete_takes_row_and_document_and_leaves_events",
    ),
    (ForgetsEvents, ScheduleConformance, "test_batch_may_name_a_schedule_twice"),
    (RepairsNothing, ScheduleConformance, "test_missing_rows_come_back"),
    (RepairsFromNowOn, ScheduleConformance, "test_emptied_index_is_rebuilt_the_same"),
    (RepairsOtherFlows, ScheduleConformance, "test_flows_without_documents_are_left_alone"),
    (RemovesRowsOfCallers, ScheduleConformance, "test_rows_of_callers_are_left_alone"),
    (AcceptsOnceInThePast, ScheduleConformance, "test_a_once_beyond_its_grace_is_refused"),
    (LosesRecentOnce, ScheduleConformance, "test_a_once_within_its_grace_runs"),
    (AlwaysReportsHealthy, ScheduleConformance, "test_schedules_without_rows_are_unhealthy"),
    *BROKEN_ARGUMENTS,
    *BROKEN_MONITORING,
    *BROKEN_JOBS,
    *BROKEN_FAIRNESS,
    *BROKEN_STARTS,
    *BROKEN_PLANNING,
    *BROKEN_READS,
    *BROKEN_OVERLAP,
    *BROKEN_RUNS,
    *BROKEN_DISPATCHES,
    *BROKEN_FINISHED,
    *BROKEN_UPKEEP,
]


def run_case(suite: type[StoreConformance], name: str, backend: type[MemoryStore]) -> None:
    """Run one case of a suite, as pytest would."""
    clock = ManualClock(START)
    case = getattr(suite, name)
    wanted = [each for each in inspect.signature(case).parameters if each != "self"]
    instance = suite()
    with asyncio.Runner() as instance.runner, pytest.MonkeyPatch.context() as monkeypatch:
        fixtures = {
            "store": backend(clock),
            "clock": clock,
            "open_store": backend,
            "monkeypatch": monkeypatch,
        }
        case(instance, **{each: fixtures[each] for each in wanted})


@pytest.mark.planted("stores")
@pytest.mark.parametrize(
    ("backend", "suite", "name"), BROKEN, ids=[each.__name__ for each, *_ in BROKEN]
)
def test_broken_backend_fails(
    backend: type[MemoryStore], suite: type[StoreConformance], name: str
) -> None:
    run_case(suite, name, MemoryStore)
    with pytest.raises(FAILURES) as caught:
        run_case(suite, name, backend)
    assert "Timeout" not in str(caught.value), "the case hangs instead of failing"
