"""Memory stores that treat wrong arguments differently, each with the case that notices it."""

from collections.abc import Sequence

from duly.errors import BackendUnavailable, Conflict, InvalidInput
from duly.model.documents import Refused
from duly.model.jobs import Job, JobId
from duly.model.locks import Lock
from duly.model.plans import Backfill, BackfillReport
from duly.model.schedule_writes import MAX_WRITES, ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule
from duly.stores import MemoryStore
from duly.testing.conformance import ArgumentConformance, StoreConformance

Answers = list[ScheduleWritten | Refused]


class AnswersNoneToANul(MemoryStore):
    async def get_job(self, job_id: JobId) -> Job | None:
        try:
            return await super().get_job(job_id)
        except InvalidInput:
            return None


class RaisesPythonErrors(MemoryStore):
    async def release_lock(self, name: str, owner: str) -> bool:
        len(name)
        return await super().release_lock(name, owner)


class TellsToRetry(MemoryStore):
    async def put_schedules(self, writes: Sequence[ScheduleWrite]) -> Answers:
        try:
            return await super().put_schedules(writes)
        except Conflict as error:
            raise BackendUnavailable(str(error)) from error


class HasNoLimit(MemoryStore):
    async def put_schedules(self, writes: Sequence[ScheduleWrite]) -> Answers:
        first = await super().put_schedules(writes[:MAX_WRITES])
        more = writes[MAX_WRITES:]
        return first + (await super().put_schedules(more) if more else [])


class SaysItExists(MemoryStore):
    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        answer = await super().delete_schedule(key, expected_version=expected_version, by=by)
        is_stale = isinstance(answer, Refused) and answer.reason == "stale"
        return Refused("exists", 1) if is_stale and not expected_version else answer


class ChangesTheMessages(MemoryStore):
    async def backfill(self, request: Backfill) -> BackfillReport | None:
        try:
            return await super().backfill(request)
        except InvalidInput as error:
            raise InvalidInput("no such range") from error

    async def acquire_lock(self, name: str, owner: str, ttl_ms: int) -> Lock | None:
        try:
            return await super().acquire_lock(name, owner, ttl_ms)
        except InvalidInput as error:
            raise InvalidInput("no such lock") from error


BROKEN_ARGUMENTS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, ArgumentConformance, name)
    for broken, name in (
        (AnswersNoneToANul, "test_wrong_arguments_are_refused_alike"),
        (RaisesPythonErrors, "test_wrong_arguments_are_refused_alike"),
        (TellsToRetry, "test_ids_that_are_taken"),
        (HasNoLimit, "test_more_than_the_limit"),
        (SaysItExists, "test_versions_that_do_not_fit"),
        (ChangesTheMessages, "test_backfills_out_of_range"),
        (ChangesTheMessages, "test_locks_out_of_range"),
    )
]
