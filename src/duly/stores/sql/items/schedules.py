"""Schedules, which are documents of one collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from duly.engine.kinds import SCHEDULE, StoredSchedule
from duly.engine.transaction import Change, Key
from duly.model.schedules import Definition, HandOver, Schedule, ScheduleId, state_of
from duly.model.scopes import Scope
from duly.rules.checks import SCHEDULES as COLLECTION
from duly.stores.sql.db import Db
from duly.stores.sql.items.mapped import Mapped, Values


def schedule_of(row: Row[Any]) -> Schedule:
    """Return the schedule stored in the columns of its document."""
    flow, _, name = row.name.partition("/")
    definition = Definition.parse(row.body)
    return Schedule(
        id=ScheduleId(row.id),
        flow=flow,
        scope=Scope.parse(row.scope),
        name=name,
        definition=definition,
        # Releases before schema version 12 write "external" as a state.
        state=state_of(definition) if row.state == "external" else row.state,
        version=row.version,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        error=row.error,
        runs_had=row.runs_had,
    )


def stored_hand_over(hand_over: HandOver) -> HandOver | None:
    """Return the value of column `hand_over`: None for `jobs`.

    This keeps its index small and fits rows written by releases without the column.
    """
    return None if hand_over == "jobs" else hand_over


def _stored(row: Row[Any]) -> StoredSchedule:
    return StoredSchedule(schedule_of(row), row.finished_at_ms)


def schedule_values(item: StoredSchedule) -> Values:
    """Return the columns of a schedule's document."""
    schedule = item.schedule
    definition = schedule.definition
    return {
        "collection": COLLECTION,
        "scope": str(schedule.scope),
        "name": f"{schedule.flow}/{schedule.name}",
        "id": schedule.id,
        "version": schedule.version,
        "state": schedule.state,
        "error": schedule.error,
        "runs_had": schedule.runs_had,
        "body": definition.to_json(),
        "created_at_ms": schedule.created_at_ms,
        "updated_at_ms": schedule.updated_at_ms,
        "hand_over": stored_hand_over(definition.hand_over),
        "finished_at_ms": item.finished_at_ms,
        "temporary": 1 if definition.delete_after_completion else None,
    }


class ScheduleTable(Mapped[StoredSchedule]):
    """The documents of schedules; their names begin with the flow."""

    def rows(self, db: Db, keys: Sequence[Key], *, hold: bool) -> dict[Key, Row[Any]]:
        """Return documents by the keys of their schedules."""
        places = {_place(key): key for key in keys}
        found = super().rows(db, sorted(places), hold=hold)
        return {places[place]: row for place, row in found.items()}

    def write(self, db: Db, changes: Mapping[Key, Change]) -> None:
        """Write documents."""
        super().write(db, {_place(key): change for key, change in changes.items()})


def _place(key: Key) -> Key:
    flow, scope, name = key
    return scope, f"{flow}/{name}"


SCHEDULES = ScheduleTable(
    SCHEDULE,
    "resources",
    ("scope", "name"),
    _stored,
    schedule_values,
    (("collection", COLLECTION),),
    "resources_names",
)
