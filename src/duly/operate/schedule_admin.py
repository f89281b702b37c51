"""Operator access to schedules of every owner: search, inspect, explain, pause, run, backfill.

A schedule is named by its key, by `flow/scope/name` or by its id. Views never hold inputs. Changes
are recorded with the name of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from duly.engine.ids import new_id
from duly.errors import Conflict, InvalidInput, NotFound
from duly.flows.collections.schedules import ScheduleCollection, ScopedSchedules
from duly.flows.collections.schema import nearest
from duly.flows.flow import Action
from duly.model.index import MAX_PAGE, Quarantined
from duly.model.ledger import OccurrenceState
from duly.model.plans import Backfill
from duly.model.schedule_writes import ScheduleEvent, ScheduleFilter, ScheduleKey
from duly.model.schedules import Limits, Schedule, ScheduleId
from duly.operate.coverage import Coverage, measure
from duly.operate.redaction.secret_names import EVERY
from duly.operate.redaction.values import scrub
from duly.operate.schedule_views import (
    OccurrenceView,
    ScheduleDetail,
    ScheduleEventView,
    ScheduleView,
    key_of,
    key_text,
    parse_key,
    secrets_of,
    view_events,
    view_occurrence,
    view_schedule,
)
from duly.operate.why import Answer, Fact, Stored, count_times, stretches, why
from duly.stores.port import Store
from duly.triggers import Explanation
from duly.triggers.instants import from_ms, to_ms

Which = ScheduleKey | str
"""A key, `flow/scope/name`, or an id."""
EVERY_SCHEDULE = ScheduleFilter()
OPERATOR = "operator"
PAGE = 100
BACKFILL_STEP = 500
COVERED = timedelta(days=7)
_SHOWN = 20
_UNLIMITED = Limits(schedules=1_000_000_000, shortest_interval_ms=1, input_bytes=1_000_000_000)
"""An operator changes no rule and no input, so the owner's limits do not apply."""


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Progress of a backfill, in nominal times."""

    done: int
    total: int
    planned: int
    """Jobs made so far."""

    @property
    def left_alone(self) -> int:
        """Times that already ran or already have a job."""
        return self.done - self.planned


class ScheduleAdmin:
    """Reads and changes schedules of all scopes; every view is redacted."""

    def __init__(self, store: Store, actions: Mapping[str, Action]) -> None:
        self._store = store
        self._actions = actions

    async def search(
        self,
        which: ScheduleFilter = EVERY_SCHEDULE,
        *,
        after: ScheduleKey | str | None = None,
        limit: int = PAGE,
    ) -> list[ScheduleView]:
        """Return one page by flow, name and scope; `after` is the previous page's last key."""
        place = parse_key(after) if isinstance(after, str) else after
        if isinstance(place, str):
            raise InvalidInput(f"after is {after!r}; pass the key of the last schedule, not its id")
        found = await self._store.search_schedules(which, after=place, limit=limit)
        rows = await self._store.find_rows([each.id for each in found])
        return [view_schedule(each, rows.get(each.id), self._redact(each)) for each in found]

    async def get(self, which: Which) -> ScheduleView:
        """Return one schedule; NotFound names the closest match."""
        found = await self._find(which)
        rows = await self._store.find_rows([found.id])
        return view_schedule(found, rows.get(found.id), self._redact(found))

    async def show(self, which: Which, *, times: int = 5, limit: int = _SHOWN) -> ScheduleDetail:
        """Return a schedule with next times, events, newest ledger rows and 7-day coverage."""
        found = await self._find(which)
        rows = await self._store.find_rows([found.id])
        secrets = secrets_of(found, self._redact(found))
        ledger = await self._store.list_occurrences(found.id, limit=limit)
        events = await self._store.schedule_events(found.id, limit)
        return ScheduleDetail(
            view_schedule(found, rows.get(found.id), self._redact(found)),
            (await self.preview(found.id, times)).times,
            view_events(events, secrets),
            [view_occurrence(row, secrets) for row in ledger],
            await self.coverage(found.id),
        )

    async def preview(self, which: Which, n: int = 5) -> Explanation:
        """Return the rule in words and its next n nominal times, also while paused."""
        found = await self._find(which)
        now = from_ms(await self._store.now_ms())
        return found.definition.trigger.explain(n, now)

    async def events(self, which: Which, limit: int = PAGE) -> list[ScheduleEventView]:
        """Return the events of a schedule, oldest first; a deleted one is named by its id."""
        schedule_id, schedule, events = await self._known(which, limit)
        secrets = () if schedule is None else secrets_of(schedule, self._redact(schedule))
        if schedule is None and not events:
            raise self._unknown(schedule_id)
        return view_events(events, secrets)

    async def occurrences(
        self,
        which: Which,
        *,
        before: datetime | None = None,
        since: datetime | None = None,
        states: Collection[OccurrenceState] | None = None,
        limit: int = PAGE,
    ) -> list[OccurrenceView]:
        """Return one page of the ledger, newest first.

        `before` is the last nominal time of the previous page.
        """
        schedule_id, schedule, _ = await self._known(which, 1)
        secrets = () if schedule is None else secrets_of(schedule, self._redact(schedule))
        rows = await self._store.list_occurrences(
            schedule_id,
            before_ms=None if before is None else to_ms(before),
            since_ms=None if since is None else to_ms(since),
            states=states,
            limit=limit,
        )
        return [view_occurrence(row, secrets) for row in rows]

    async def coverage(
        self, which: Which, since: datetime | None = None, until: datetime | None = None
    ) -> Coverage:
        """Return the coverage of a window; by default the last seven days."""
        schedule_id, schedule, events = await self._known(which, MAX_PAGE)
        now = from_ms(await self._store.now_ms())
        until = now if until is None else until
        since = until - COVERED if since is None else since
        summary = await self._store.ledger_summary(schedule_id, to_ms(since), to_ms(until) + 1)
        life = stretches(schedule, events)
        return measure(life, summary, to_ms(until) + 1, to_ms(now))

    async def why(self, which: Which, at: datetime) -> Answer:
        """Explain why it did or did not fire at an instant; name a deleted one by its id."""
        schedule_id, schedule, events = await self._known(which, MAX_PAGE)
        if schedule is None and not events:
            raise self._unknown(schedule_id)
        rows = await self._store.find_rows([schedule_id])
        occurrence = await self._store.occurrence_at(schedule_id, to_ms(at))
        now = from_ms(await self._store.now_ms())
        answer = why(Stored(schedule, events, rows.get(schedule_id), occurrence), now, at)
        return self._clean(answer, schedule)

    async def pause(self, which: Which, note: str = "", *, by: str = OPERATOR) -> ScheduleView:
        """Remove a schedule from the index until resume(); the note records the reason."""
        found = await self._find(which)
        await self._of(found, by).pause(found.name, note)
        return await self.get(found.id)

    async def resume(self, which: Which, *, by: str = OPERATOR) -> ScheduleView:
        """Return a paused schedule to the index; its next time is the first after now."""
        found = await self._find(which)
        await self._of(found, by).resume(found.name)
        return await self.get(found.id)

    async def delete(self, which: Which, *, by: str = OPERATOR) -> ScheduleView:
        """Delete a schedule; its ledger and events are kept under its id."""
        found = await self._find(which)
        await self._of(found, by).delete(found.name)
        return view_schedule(found, None, self._redact(found))

    async def run_now(self, which: Which, request_id: str | None = None) -> OccurrenceView:
        """Create one extra occurrence; the same request id returns the same one."""
        found = self._startable(await self._find(which))
        made = await self._store.run_now(found.id, request_id or new_id("run_"))
        if made is None:
            raise self._unknown(found.id)
        return view_occurrence(made, secrets_of(found, self._redact(found)))

    async def backfill(
        self,
        which: Which,
        since: datetime,
        until: datetime,
        *,
        on_step: Callable[[BackfillProgress], None] | None = None,
        step: int = BACKFILL_STEP,
    ) -> BackfillProgress:
        """Run past times in [since, until) that never ran, in steps.

        An interrupted backfill can be restarted: times that have a job are left alone.
        """
        found = self._startable(await self._find(which))
        from_at, to_at = to_ms(since), to_ms(until)
        total = count_times(found.definition.trigger, from_at, to_at)
        progress = BackfillProgress(0, total, 0)
        place: int | None = from_at
        while place is not None:
            report = await self._store.backfill(Backfill(found.id, place, to_at, step))
            if report is None:
                raise self._unknown(found.id)
            progress = replace(
                progress,
                done=progress.done + report.planned + report.left_alone,
                planned=progress.planned + report.planned,
            )
            place = report.next_from_ms
            if on_step is not None:
                on_step(progress)
        return progress

    def _startable(self, schedule: Schedule) -> Schedule:
        """Refuse to make jobs of an action whose declared options are not known here."""
        action = f"{schedule.flow}.{schedule.definition.action}"
        if action not in self._actions:
            raise InvalidInput(
                f"action {action} is not known here, so its declared queue, retry, timeout and "
                "delivery would not apply; load the application that has it (--app MODULE:NAME)"
            )
        return schedule

    async def quarantined(self, limit: int = PAGE) -> list[Quarantined]:
        """Return rows that cannot be evaluated, with their errors."""
        found = await self._store.list_quarantined(limit)
        return [replace(each, error=scrub(each.error)) for each in found]

    async def release(self, which: Which, *, by: str = OPERATOR) -> ScheduleView:
        """Retry a quarantined schedule; it is quarantined again if it is still broken.

        Raises Conflict for a schedule in any other state.
        """
        found = await self._find(which)
        if found.state != "quarantined":
            raise Conflict(f"schedule {key_text(key_of(found))} is {found.state}, not quarantined")
        await self._of(found, by).update(found.name)
        return await self.get(found.id)

    def _of(self, schedule: Schedule, by: str) -> ScopedSchedules:
        return ScheduleCollection(self._store, schedule.flow, limits=_UNLIMITED).of(
            schedule.scope, by=by
        )

    async def _known(
        self, which: Which, limit: int
    ) -> tuple[ScheduleId, Schedule | None, list[ScheduleEvent]]:
        """Return a schedule's id, the schedule (None: deleted, named by id) and its events."""
        asked = parse_key(which) if isinstance(which, str) else which
        if isinstance(asked, ScheduleKey):
            schedule: Schedule | None = await self._find(asked)
        else:
            schedule = await self._store.find_schedule(asked)
        schedule_id = schedule.id if schedule is not None else ScheduleId(str(asked))
        return schedule_id, schedule, await self._store.schedule_events(schedule_id, limit)

    async def _find(self, which: Which) -> Schedule:
        asked = parse_key(which) if isinstance(which, str) else which
        if not isinstance(asked, ScheduleKey):
            by_id = await self._store.find_schedule(asked)
            if by_id is None:
                raise self._unknown(asked)
            return by_id
        found = await self._store.get_schedule(asked)
        if found is None:
            raise NotFound(f"schedule {key_text(asked)} does not exist; {await self._near(asked)}")
        return found

    async def _near(self, key: ScheduleKey) -> str:
        """Return a hint: a similar name of the same owner, or the same name elsewhere."""
        own = await self._store.list_schedules(key.flow, key.scope, limit=MAX_PAGE)
        if own and (hint := nearest(key.name, [each.name for each in own])).startswith("did"):
            return hint
        same = await self._store.search_schedules(ScheduleFilter(name_prefix=key.name), limit=3)
        if same:
            return f"there is {', '.join(key_text(key_of(each)) for each in same)}"
        return "`duly schedules list` shows what there is"

    def _unknown(self, schedule_id: str) -> NotFound:
        return NotFound(f"schedule {schedule_id} does not exist and has left no events")

    def _clean(self, answer: Answer, schedule: Schedule | None) -> Answer:
        """Scrub an answer: errors and notes are free text and may contain secrets of the input."""
        secrets = () if schedule is None else secrets_of(schedule, self._redact(schedule))
        facts = tuple(Fact(name, scrub(value, secrets)) for name, value in answer.facts)
        return replace(answer, text=scrub(answer.text, secrets), facts=facts)

    def _redact(self, schedule: Schedule) -> Collection[str]:
        action = self._actions.get(f"{schedule.flow}.{schedule.definition.action}")
        return (EVERY,) if action is None else action.redact
