"""Schedule collections: schedules of one flow, kept with their index rows in one transaction.

Requests of users, agents and code become stored schedules. A schedule that could never be
dispatched, or exceeds its owner's limits, is refused at the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import msgspec

from duly.engine.ids import new_id
from duly.errors import Conflict, DulyError, InvalidInput, shown
from duly.flows.callers_transaction import AsyncTransaction, join
from duly.flows.collections.mirror import Mirror
from duly.flows.collections.refusals import MAX_TRIES, check_page, contended, refusal
from duly.flows.collections.requests import (
    Ensured,
    EnsureOutcome,
    Named,
    NewSchedule,
    ScheduleChanges,
    ScheduleOptions,
    TriggerWords,
    asked,
    known_words,
)
from duly.flows.collections.schema import MAX_JSON_BYTES, nearest, plain
from duly.model.documents import ABSENT, Refused
from duly.model.index import MAX_PAGE
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import DEFAULT_LIMITS, Definition, Limits, Origin, Schedule, ScheduleId
from duly.model.scopes import (
    MAX_DISPATCH_ID,
    Scope,
    check_flow,
    check_name,
    check_new_owner,
    check_workspace,
    dispatch_id,
)
from duly.stores.port import ScheduleIndex, Store
from duly.triggers import Every, Explanation, Trigger, parse_trigger
from duly.triggers.core import Wall
from duly.triggers.instants import from_ms
from duly.triggers.trigger import wall_of

Zones = Literal["any", "utc"]
Fit = Callable[[str, Any], Any]
"""Returns an action's input as its schema stores it, from the action's name and the input."""
_NO_MARKS: Mapping[str, Any] = MappingProxyType({})


class CollectionOptions(TypedDict, total=False):
    """The options of a collection of schedules besides its limits and actions."""

    zones: Zones
    """`utc`: triggers in any other zone are refused."""
    fit: Fit | None
    index: ScheduleIndex | None
    """An index of the application's own; None: the store's."""


class ScheduleCollection:
    """The schedules of one flow, each owned by a scope; of() returns those of a scope.

    With `index=` their rows go to that index instead of the store's, whatever `hand_over` is: a
    tick that claims from it posts them. Create and change such schedules through this collection.
    """

    def __init__(
        self,
        store: Store,
        flow: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        actions: Collection[str] | None = None,
        **options: Unpack[CollectionOptions],
    ) -> None:
        known_words(options, CollectionOptions)
        self.store = store
        self.flow = check_flow(flow)
        self.limits = limits
        self.actions = None if actions is None else frozenset(actions)
        self.zones: Zones = options.get("zones", "any")
        self.fit = options.get("fit")
        index = options.get("index")
        # The store's own index is written with the schedule, in one transaction.
        self.mirror = None if index is None or index is store else Mirror(store, index)

    async def reindex(self) -> int:
        """Rewrite the rows of all schedules of the flow in the collection's own index.

        Return how many schedules there are. Refused if the store's index is used, which
        reconcile() rebuilds.
        """
        if self.mirror is None:
            raise InvalidInput(
                f"the schedules of flow {self.flow!r} are in the index of the store; call "
                "store.reconcile() to rebuild it"
            )
        return await self.mirror.reindex(self.flow)

    def of(
        self,
        scope: Scope,
        *,
        by: str | None = None,
        workspace: str | None = None,
        origin: Origin = "dynamic",
    ) -> ScopedSchedules:
        """Return the schedules of one scope.

        `by` is recorded as the requester; default: the scope. Schedules written through it get this
        origin and, if it is set, this workspace.
        """
        if not isinstance(scope, Scope):
            raise InvalidInput(f"scope {scope!r}; pass SYSTEM, user(id) or workspace(id)")
        if by is not None:
            check_name("by", by, most=MAX_DISPATCH_ID)
        if workspace is not None:
            check_workspace(workspace)
        marks = {} if workspace is None or scope.kind != "user" else {"workspace": workspace}
        who = str(scope) if by is None else by
        return ScopedSchedules(self, scope, who, marks | {"origin": origin})

    def definition(self, words: Mapping[str, Any], old: Definition | None = None) -> Definition:
        """Return the requested definition; fields that are not named keep their values.

        A trigger given as text or JSON that names no `tz` keeps the zone, gap and fold of the old
        one.
        """
        asked = dict(words)
        if "trigger" in asked:
            wall = None if old is None else wall_of(old.trigger)
            asked["trigger"] = self._trigger(asked["trigger"], wall).to_json()
        if "action" in asked:
            asked["action"] = self._action(asked["action"])
        kept = {} if old is None else msgspec.json.decode(old.to_json())
        made = Definition.parse(kept | {name: self._plain(name, asked[name]) for name in asked})
        if self.fit is None or not asked.keys() & {"action", "input"}:
            return made
        return msgspec.structs.replace(made, input=self.fit(made.action, made.input))

    def _plain(self, name: str, value: object) -> Any:
        return plain(name, value, self.limits.input_bytes if name == "input" else MAX_JSON_BYTES)

    def _trigger(self, words: TriggerWords, wall: Wall | None) -> Trigger:
        # Through JSON, so that a kind of trigger that could not be stored is refused here.
        given = words.to_json() if isinstance(words, Trigger) else words
        return parse_trigger(given, zones=self.zones, wall=wall)

    def _action(self, action: str | Named) -> str:
        full = action if isinstance(action, str) else getattr(action, "name", action)
        name = full.removeprefix(f"{self.flow}.") if isinstance(full, str) else full
        if not isinstance(action, str) and isinstance(name, str) and "." in name:
            raise InvalidInput(
                f"action {name} does not belong to flow {self.flow!r}; pass one that does"
            )
        if not isinstance(name, str):
            raise InvalidInput(f"action is {shown(name)}; pass an action of the flow, or its name")
        if self.actions is not None and name not in self.actions:
            hint = nearest(name, self.actions)
            raise InvalidInput(f"flow {self.flow!r} has no action {name!r}; {hint}")
        return name


class ScopedSchedules:
    """The schedules of one scope in one flow. Create one with ScheduleCollection.of()."""

    def __init__(
        self,
        collection: ScheduleCollection,
        scope: Scope,
        by: str,
        marks: Mapping[str, Any] = _NO_MARKS,
    ) -> None:
        self.collection = collection
        self.scope = scope
        self.by = by
        self._marks = marks

    async def create(
        self,
        name: str,
        trigger: TriggerWords,
        *,
        action: str | Named,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create a schedule and its index row; Conflict if the name is taken or the scope full."""
        write = self._new(asked(name, trigger, action, options))
        with self._naming(name):
            (written,) = await self.collection.store.put_schedules([write])
        made = self._made(write, written)
        await self._follow(None, made)
        return made

    @overload
    def create_in(
        self,
        connection: AsyncTransaction,
        name: str,
        trigger: TriggerWords,
        *,
        action: str | Named,
        **options: Unpack[ScheduleOptions],
    ) -> Awaitable[Schedule]: ...

    @overload
    def create_in(
        self,
        connection: Any,
        name: str,
        trigger: TriggerWords,
        *,
        action: str | Named,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule: ...

    def create_in(
        self,
        connection: Any,
        name: str,
        trigger: TriggerWords,
        *,
        action: str | Named,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule | Awaitable[Schedule]:
        """Create a schedule inside the caller's own transaction: committed or rolled back with it.

        Takes a SQLAlchemy Connection or Session, on which it is a plain call, since the connection
        must stay on the caller's thread; or an AsyncConnection or AsyncSession, on which it must be
        awaited. A refusal leaves the transaction usable.
        """
        if self.collection.mirror is not None:
            raise InvalidInput(
                "create_in() cannot write to an index of the application's own, which is outside "
                "the transaction; call create() after the commit"
            )
        write = self._new(asked(name, trigger, action, options))

        def create(plain: Any) -> Schedule:
            with self._naming(name):
                (written,) = self.collection.store.put_schedules_in(plain, [write])
            return self._made(write, written)

        return join(connection, create)

    async def create_many(self, new: Sequence[NewSchedule]) -> list[Schedule | Conflict]:
        """Create many schedules in one transaction; return an answer for each, in order.

        If one is refused (its name is taken, the scope is full), its place holds the Conflict and
        the others are created. InvalidInput in one of them refuses all.
        """
        given: object = new
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InvalidInput(f"new is {shown(given)}; pass a list of NewSchedule")
        for each in given:
            if not isinstance(each, NewSchedule):
                raise InvalidInput(f"new holds {shown(each)}; pass a list of NewSchedule")
        if len(new) > MAX_PAGE:
            raise InvalidInput(f"{len(new)} schedules at once; allowed: {MAX_PAGE}")
        writes = [self._new(each) for each in new]
        answers = await self.collection.store.put_schedules(writes)
        for answer in answers:
            if isinstance(answer, ScheduleWritten):
                await self._follow(None, answer.schedule)
        return [
            cast(Conflict, self._refusal(write.key.name, answer, ABSENT))
            if isinstance(answer, Refused)
            else answer.schedule
            for write, answer in zip(writes, answers, strict=True)
        ]

    async def ensure(
        self,
        name: str,
        trigger: TriggerWords,
        *,
        action: str | Named,
        **options: Unpack[ScheduleOptions],
    ) -> Ensured:
        """Create the schedule, or update the one of that name to these arguments.

        Repeating it changes nothing, from any number of processes. Omitted options return to their
        defaults, except that a paused schedule stays paused. The next time stays unless the trigger
        changed. An interval that an action may set stays as it was set.
        """
        words = _words(asked(name, trigger, action, options))
        left = [each for each in ("enabled", "note") if each not in options]
        for _ in range(MAX_TRIES):
            found = await self.get(name)
            with self._naming(name):
                definition = self.collection.definition(words | dict(self._marks))
                if found is not None:
                    definition = _as_left(definition, found, left)
                write = self._write(name, definition, ABSENT if found is None else found.version)
                (answer,) = await self.collection.store.put_schedules([write])
            if isinstance(answer, ScheduleWritten):
                await self._follow(found, answer.schedule)
                return Ensured(answer.schedule, _outcome(found, answer))
            if answer.reason == "full":
                raise self._refusal(name, answer, ABSENT)
        raise contended(self._what(name))

    async def get(self, name: str) -> Schedule | None:
        """Return one schedule; None: there is none."""
        return await self.collection.store.get_schedule(self._key(name))

    async def update(
        self, name: str, *, version: int | None = None, **changes: Unpack[ScheduleChanges]
    ) -> Schedule:
        """Change the named fields; with a version, only if the schedule still has it.

        A trigger given as text or JSON that names no zone keeps the zone of the schedule. While
        trigger, enabled, hand_over and max_runs stay, the next time stays too.
        """
        words = known_words(changes, ScheduleChanges)
        for _ in range(MAX_TRIES):
            found = await self._found(name)
            if version is not None and found.version != version:
                raise self._refusal(name, Refused("stale", found.version), version)
            with self._naming(name):
                definition = self.collection.definition(words, found.definition)
                write = self._write(name, definition, found.version)
                (answer,) = await self.collection.store.put_schedules([write])
            if isinstance(answer, ScheduleWritten):
                await self._follow(found, answer.schedule)
                return answer.schedule
            if answer.reason == "full":
                raise self._refusal(name, answer, found.version)
        raise contended(self._what(name))

    async def pause(self, name: str, note: str = "") -> Schedule:
        """Remove a schedule from the index until resume(); the note records the reason."""
        return await self.update(name, enabled=False, note=note)

    async def resume(self, name: str, note: str = "") -> Schedule:
        """Put a paused schedule back into the index; its next time is the first after now."""
        return await self.update(name, enabled=True, note=note)

    async def delete(self, name: str, *, version: int | None = None) -> bool:
        """Remove a schedule and its index row; False: there was none."""
        answer = await self.collection.store.delete_schedule(
            self._key(name), expected_version=version, by=self.by
        )
        if isinstance(answer, Refused) and answer.reason != "absent":
            raise self._refusal(name, answer, version)
        if self.collection.mirror is not None:
            await self.collection.mirror.remove(self._key(name))
        return isinstance(answer, Schedule)

    async def preview(self, name: str, n: int = 5) -> Explanation:
        """Return the rule in words and its next n nominal times, paused or not."""
        found = await self._found(name)
        now = from_ms(await self.collection.store.now_ms())
        return found.definition.trigger.explain(n, now)

    async def events(self, name: str, *, limit: int = 100) -> list[ScheduleEvent]:
        """Return the events of a schedule since it was created, oldest first."""
        found = await self._found(name)
        return await self.collection.store.schedule_events(found.id, check_page(limit))

    async def list(self, *, after: str = "", limit: int = 100) -> Sequence[Schedule]:
        """Return a page in order of name; pass its last name as `after` for the next page."""
        return await self.collection.store.list_schedules(
            self.collection.flow, str(self.scope), after=after, limit=check_page(limit)
        )

    def _key(self, name: str) -> ScheduleKey:
        dispatch_id(self.scope, name)
        return ScheduleKey(self.collection.flow, str(self.scope), name)

    def _new(self, new: NewSchedule) -> ScheduleWrite:
        with self._naming(new.name):
            definition = self.collection.definition(_words(new) | dict(self._marks))
            return self._write(new.name, definition, ABSENT)

    async def _follow(self, before: Schedule | None, schedule: Schedule) -> None:
        if self.collection.mirror is not None:
            await self.collection.mirror.follow(before, schedule)

    def _write(self, name: str, definition: Definition, expected: int) -> ScheduleWrite:
        if self.collection.mirror is not None:
            definition = self.collection.mirror.stored(definition)
        if expected == ABSENT:
            check_new_owner(self.scope)
        return ScheduleWrite(
            key=self._key(name),
            id=ScheduleId(new_id("sch_")),
            definition=definition,
            limits=self.collection.limits,
            expected_version=expected,
            by=self.by,
        )

    async def _found(self, name: str) -> Schedule:
        found = await self.get(name)
        if found is None:
            raise self._refusal(name, Refused("absent", 0), None)
        return found

    def _made(self, write: ScheduleWrite, answer: ScheduleWritten | Refused) -> Schedule:
        if isinstance(answer, Refused):
            raise self._refusal(write.key.name, answer, ABSENT)
        return answer.schedule

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Add the schedule's name to an InvalidInput about its definition."""
        try:
            yield
        except InvalidInput as error:
            error.add_note(f"in {self._what(name)}")
            raise

    def _what(self, name: str) -> str:
        return f"schedule {name!r} of {self.scope} in flow {self.collection.flow!r}"

    def _refusal(self, name: str, refused: Refused, expected: int | None) -> DulyError:
        most = getattr(self.collection.limits, refused.limit)
        where = f" in flow {self.collection.flow!r}" if refused.limit != "schedules" else ""
        full = (
            f"{self.scope} has {refused.version} schedules{where} and may have {most}; "
            f"delete one first, or raise Limits.{refused.limit} (finished ones are not counted)"
        )
        return refusal(self._what(name), refused, expected=expected, full=full)


def _outcome(found: Schedule | None, answer: ScheduleWritten) -> EnsureOutcome:
    if answer.created:
        return "created"
    is_same = found is not None and answer.schedule.version == found.version
    return "unchanged" if is_same else "updated"


def _words(new: NewSchedule) -> dict[str, Any]:
    """Return the fields of a requested schedule without its name."""
    return {each.name: getattr(new, each.name) for each in fields(NewSchedule)[1:]}


def _as_left(wanted: Definition, found: Schedule, left: Sequence[str]) -> Definition:
    """Return the requested definition with kept changes: a pause, an interval within bounds."""
    stored = found.definition
    kept: dict[str, Any] = {name: getattr(stored, name) for name in left}
    bounds, rule = wanted.interval_bounds_ms, stored.trigger
    if isinstance(wanted.trigger, Every) and isinstance(rule, Every) and bounds is not None:
        shortest, longest = bounds
        if stored.interval_bounds_ms == bounds and shortest <= rule.interval_ms <= longest:
            kept["trigger"] = _with_interval(wanted.trigger, rule, found.updated_at_ms)
    return msgspec.structs.replace(wanted, **kept)


def _with_interval(wanted: Every, rule: Every, written_ms: int) -> Every:
    """Return the requested trigger at the interval that was set, with its anchor."""
    limits, anchor_ms = wanted.limits, rule.limits.start_ms
    # An action's interval is anchored at a past time: a later anchor is an earlier start_at.
    last_ms = written_ms if limits.end_ms is None else min(written_ms, limits.end_ms)
    if anchor_ms is not None and (limits.start_ms or 0) <= anchor_ms <= last_ms:
        limits = replace(limits, start_ms=anchor_ms)
    return replace(wanted, interval_ms=rule.interval_ms, limits=limits)
