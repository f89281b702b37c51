"""Memory stores with one bug each in limits or finished schedules."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from duly.model.documents import Refused
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.model.schedules import Limits
from duly.model.upkeep import LedgerRetention, SchedulesPruned
from duly.stores import MemoryStore
from duly.testing.conformance import ScheduleConformance, StoreConformance, UpkeepConformance


class BrokenLimits(MemoryStore):
    """Base of stores that count wrongly."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        before = dict(self._tables.documents)
        self.hide(writes)
        hidden = {key: self._tables.documents[key] for key in self._tables.documents}
        answers = await super().put_schedules([self.ask(write) for write in writes])
        for key, stored in before.items():
            if self._tables.documents.get(key) is hidden.get(key):
                self._tables.documents[key] = stored
        return answers

    def hide(self, writes: Sequence[ScheduleWrite]) -> None:
        """Change which schedules are counted."""

    def ask(self, write: ScheduleWrite) -> ScheduleWrite:
        return write


class CountsFinished(BrokenLimits):
    def hide(self, writes: Sequence[ScheduleWrite]) -> None:
        own = {("schedules", each.key.scope, f"{each.key.flow}/{each.key.name}") for each in writes}
        for key, stored in self._tables.documents.items():
            if stored.state == "finished" and key not in own:
                self._tables.documents[key] = replace(stored, state="active")


class IgnoresLimitsPerFlow(BrokenLimits):
    def ask(self, write: ScheduleWrite) -> ScheduleWrite:
        return replace(write, limits=replace(write.limits, schedules_per_flow=None))


class ChecksCreationsOnly(BrokenLimits):
    def ask(self, write: ScheduleWrite) -> ScheduleWrite:
        key = ("schedules", write.key.scope, f"{write.key.flow}/{write.key.name}")
        return replace(write, limits=Limits()) if key in self._tables.documents else write


class CountsBeforeItWrites(MemoryStore):
    """Lets other writes in between."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        held = len(self._tables.documents)
        await asyncio.sleep(0)
        room = [replace(each, limits=Limits()) for each in writes if held < each.limits.schedules]
        return await super().put_schedules(room or writes)


class BrokenRetention(MemoryStore):
    """Base of stores that delete finished schedules wrongly."""

    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        before = self._tables.copy()
        self.hide()
        pruned = await super().prune_schedules(retention, limit, cursor)
        self._tables.jobs, self._tables.posts = before.jobs, before.posts
        self._tables.ledger = before.ledger
        return pruned

    def hide(self) -> None:
        """Change the tables that the step sees."""


class DeletesBusySchedules(BrokenRetention):
    def hide(self) -> None:
        self._tables.jobs = {}


class DeletesPostedSchedules(BrokenRetention):
    def hide(self) -> None:
        self._tables.posts, self._tables.ledger = {}, {}


class DeletesEarly(BrokenRetention):
    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        if retention.finished_ms is not None:
            retention = replace(retention, finished_ms=retention.finished_ms - 1)
        return await super().prune_schedules(retention, limit, cursor)


class DeletesSilently(BrokenRetention):
    async def prune_schedules(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> SchedulesPruned:
        events = list(self._tables.events)
        pruned = await super().prune_schedules(retention, limit, cursor)
        self._tables.events = events
        return pruned


class DeletesStaticSchedules(BrokenRetention):
    def hide(self) -> None:
        for key, stored in self._tables.documents.items():
            body = stored.document.body.replace('"origin":"static",', "")
            document = replace(stored.document, body=body)
            self._tables.documents[key] = replace(stored, document=document)


BROKEN_FINISHED: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (CountsFinished, ScheduleConformance, "test_finished_schedules_do_not_count"),
    (IgnoresLimitsPerFlow, ScheduleConformance, "test_owner_has_a_limit_in_each_flow"),
    (
        ChecksCreationsOnly,
        ScheduleConformance,
        "test_finished_schedule_that_is_to_run_again_counts",
    ),
    (ChecksCreationsOnly, ScheduleConformance, "test_full_owner_may_pause_and_not_resume_more"),
    (CountsBeforeItWrites, ScheduleConformance, "test_limits_hold_when_many_are_created_at_once"),
    *(
        (broken, UpkeepConformance, name)
        for broken, name in (
            (DeletesBusySchedules, "test_completed_schedule_is_deleted_at_once"),
            (DeletesPostedSchedules, "test_dispatch_under_way_keeps_its_schedule"),
            (DeletesEarly, "test_finished_schedules_are_deleted_in_the_end"),
            (DeletesSilently, "test_finished_schedules_are_deleted_in_the_end"),
            (DeletesStaticSchedules, "test_schedules_that_the_code_declares_stay"),
        )
    ),
]
