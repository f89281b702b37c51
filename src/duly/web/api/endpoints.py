"""The API for end users: the schedules of the authenticated principal only.

The owner is never read from the request: the principal's scope decides, so no id can reach the
schedules of another owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from duly.dispatch.contract import Answer, refusal
from duly.dispatch.options import HttpOptions
from duly.errors import InvalidInput, NotFound
from duly.flows.collections import ScheduleCollection, ScopedSchedules
from duly.flows.flow import Flow
from duly.model.index import MAX_PAGE
from duly.model.json_bounds import check_json_text
from duly.model.principals import Principal
from duly.model.schedules import Definition, Schedule
from duly.model.scopes import check_name
from duly.operate.redaction.values import is_masked
from duly.operate.schedule_views import secrets_of
from duly.stores.port import Store
from duly.triggers import parse_trigger
from duly.triggers.instants import STORED_FROM_MS, from_ms, to_ms
from duly.web.api import shapes
from duly.web.api.routing import decoded
from duly.web.api.views import history_of, preview_of, view_of

T = TypeVar("T")
MAX_PREVIEW = 100
_RUN = frozenset({"input", "trigger", "max_runs"})
"""Fields that determine how an action runs; other changes only pause, resume or annotate it."""


@dataclass(frozen=True, slots=True)
class UserCall:
    """An authenticated call."""

    store: Store
    flow: Flow
    principal: Principal
    params: Mapping[str, str]
    """Still percent-encoded."""
    query: Mapping[str, str]
    body: bytes

    def read(self, kind: type[T], *, empty: T | None = None) -> T:
        """Return the decoded body; refuse an invalid one with the place of the error."""
        if empty is not None and not self.body.strip():
            return empty
        try:
            check_json_text("the body", self.body)
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput) as error:
            raise refusal(400, "invalid_body", str(error)) from None

    @property
    def name(self) -> str:
        """Name of the schedule in the path."""
        name = decoded(self.params["name"])
        if name is None:
            raise refusal(400, "invalid_schedule_id")
        return name

    @property
    def after(self) -> str:
        """Name after which the page begins."""
        after = self.query.get("after", "")
        try:
            return after and check_name("after", after)
        except InvalidInput as error:
            raise refusal(400, "invalid_query", str(error)) from None

    def redact(self, schedule: Schedule) -> Collection[str]:
        """Return the secret names that the schedule's action declares."""
        action = self.flow.actions.get(schedule.definition.action)
        return () if action is None else action.redact

    def view(self, schedule: Schedule, now_ms: int) -> shapes.ScheduleView:
        """Return the view of a schedule for its owner."""
        return view_of(schedule, now_ms, self.redact(schedule))

    def number(self, name: str, usual: int, most: int) -> int:
        """Return an integer from the query; refuse values outside 1 to `most`."""
        text = self.query.get(name, str(usual))
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise refusal(400, "invalid_query", f"{name} is {text[:40]!r}; allowed: 1 to {most}")
        return int(text)


class UserApi:
    """Endpoints for end users; one method per operation."""

    def __init__(self, options: HttpOptions) -> None:
        self._hand_over = options.user_hand_over
        self._allowed = None if options.user_actions is None else frozenset(options.user_actions)
        self.operations: dict[str, Callable[[UserCall], Awaitable[Answer]]] = {
            "listMine": self.list_mine,
            "create": self.create,
            "get": self.get,
            "update": self.update,
            "delete": self.delete,
            "pause": self.pause,
            "resume": self.resume,
            "previewMine": self.preview_mine,
            "history": self.history,
            "preview": self.preview,
        }

    async def list_mine(self, call: UserCall) -> Answer:
        """Return one page of schedules by name."""
        limit = call.number("limit", 100, MAX_PAGE)
        found = await self._mine(call).list(after=call.after, limit=limit)
        now_ms = await call.store.now_ms()
        following = found[-1].name if len(found) == limit else None
        return Answer(
            200, shapes.SchedulePage([call.view(each, now_ms) for each in found], following)
        )

    async def create(self, call: UserCall) -> Answer:
        """Create a schedule."""
        new = call.read(shapes.NewSchedule)
        _check_written(new.input)
        made = await self._mine(call).create(
            new.name,
            new.trigger,
            action=new.action,
            input=new.input,
            description=new.description,
            enabled=new.enabled,
            note=new.note,
            max_runs=new.max_runs,
            delete_after_completion=new.delete_after_completion,
            hand_over=self._hand_over,
        )
        return Answer(201, call.view(made, await call.store.now_ms()))

    async def get(self, call: UserCall) -> Answer:
        """Return one schedule."""
        found = await self._mine(call).get(call.name)
        if found is None:
            raise NotFound(call.name)
        return Answer(200, call.view(found, await call.store.now_ms()))

    async def update(self, call: UserCall) -> Answer:
        """Change the given fields."""
        changes = call.read(shapes.Changes)
        _check_written(changes.input)
        said: dict[str, Any] = {
            field: value
            for field in changes.__struct_fields__
            if field != "version" and (value := getattr(changes, field)) is not UNSET
        }
        version = None if changes.version is UNSET else changes.version
        changed = await self._mine(call).update(call.name, version=version, **said)
        return Answer(200, call.view(changed, await call.store.now_ms()))

    async def delete(self, call: UserCall) -> Answer:
        """Delete a schedule."""
        if not await self._mine(call).delete(call.name):
            raise NotFound(call.name)
        return Answer(204)

    async def pause(self, call: UserCall) -> Answer:
        """Pause a schedule."""
        note = call.read(shapes.Note, empty=shapes.Note()).note
        paused = await self._mine(call).pause(call.name, note)
        return Answer(200, call.view(paused, await call.store.now_ms()))

    async def resume(self, call: UserCall) -> Answer:
        """Resume a schedule."""
        note = call.read(shapes.Note, empty=shapes.Note()).note
        resumed = await self._mine(call).resume(call.name, note)
        return Answer(200, call.view(resumed, await call.store.now_ms()))

    async def preview_mine(self, call: UserCall) -> Answer:
        """Return the next times of a stored rule."""
        found = await self._mine(call).preview(call.name, call.number("n", 5, MAX_PREVIEW))
        return Answer(200, preview_of(found))

    async def preview(self, call: UserCall) -> Answer:
        """Return the next times of a given rule, without storing it."""
        asked = call.read(shapes.Question)
        trigger = parse_trigger(asked.trigger, zones=call.flow.zones)
        now = from_ms(await call.store.now_ms())
        if not trigger.is_bound:
            trigger = trigger.bind(f"{call.flow.name}/{call.principal.scope}", now)
        return Answer(200, preview_of(trigger.explain(asked.n, now)))

    async def history(self, call: UserCall) -> Answer:
        """Return one page of the ledger."""
        limit = call.number("limit", 100, MAX_PAGE)
        before_ms = _instant_ms(call.query.get("before"))
        found = await self._mine(call).get(call.name)
        if found is None:
            raise NotFound(call.name)
        rows = await call.store.list_occurrences(found.id, before_ms=before_ms, limit=limit)
        return Answer(200, history_of(rows, limit, secrets_of(found, call.redact(found))))

    def _mine(self, call: UserCall) -> ScopedSchedules:
        flow, who = call.flow, call.principal
        kind = ScheduleCollection if self._allowed is None else _OfAllowed
        collection = kind(
            call.store,
            flow.name,
            limits=flow.limits,
            actions=[name for name in flow.actions if self._may_schedule(flow, name)],
            zones=flow.zones,
            fit=flow.fit,
        )
        return collection.of(who.scope, workspace=who.org_id)

    def _may_schedule(self, flow: Flow, action: str) -> bool:
        return self._allowed is None or f"{flow.name}.{action}" in self._allowed


class _OfAllowed(ScheduleCollection):
    """Collection with an allow-list: schedules of other actions can be stopped but not edited."""

    def definition(self, words: Mapping[str, Any], old: Definition | None = None) -> Definition:
        # Checked here, inside the write, so that it applies to the version being replaced.
        is_theirs = old is None or self.actions is None or old.action in self.actions
        if old is not None and not is_theirs and "action" not in words and words.keys() & _RUN:
            raise InvalidInput(
                f"action {old.action!r} is not one that users may schedule; this schedule can be "
                "paused, resumed and deleted"
            )
        return super().definition(words, old)


def _check_written(given: Any) -> None:
    """Refuse the placeholder that answers show for a secret: it would overwrite the secret."""
    if is_masked(given):
        message = "input contains '[redacted]'; write the secret itself, or omit input to keep it"
        raise refusal(400, "invalid_schedule", message)


def _instant_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        ms = to_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError, InvalidInput):
        ms = -1
    if ms < STORED_FROM_MS:
        raise refusal(400, "invalid_query", f"before is {text[:40]!r}; allowed: ISO-8601 with zone")
    return ms
