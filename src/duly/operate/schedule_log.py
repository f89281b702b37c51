"""Log lines about schedules that came to be, from what the store answers.

Takes a store; lets it say, in one place, what was created through it, whoever asked: a user, an
agent, a route or the code's own declaration. No line holds an input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

from duly.model.documents import Refused
from duly.model.jobs import DEFAULT_QUEUE
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule
from duly.model.scopes import workspace_of
from duly.stores.port import Store
from duly.triggers import Every

log = logging.getLogger(__name__)

Answers = list[ScheduleWritten | Refused]


class Journal:
    """Tells of schedules that are created; `queues` are those of actions, by full name."""

    def __init__(self, queues: Mapping[str, str]) -> None:
        self._queues = queues

    def watch(self, store: Store) -> Store:
        """Tell what is created through this store from now on; gives it back."""
        put, put_in = store.put_schedules, store.put_schedules_in

        @wraps(put)
        async def told(writes: Sequence[ScheduleWrite]) -> Answers:
            answers = await put(writes)
            self._tell(writes, answers)
            return answers

        @wraps(put_in)
        def told_in(transaction: Any, writes: Sequence[ScheduleWrite]) -> Answers:
            answers = put_in(transaction, writes)
            self._tell(writes, answers)  # whether the caller will commit is not known yet
            return answers

        for name, verb in (("put_schedules", told), ("put_schedules_in", told_in)):
            setattr(store, name, verb)
        return store

    def _tell(self, writes: Sequence[ScheduleWrite], answers: Answers) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        for write, answer in zip(writes, answers, strict=True):
            if isinstance(answer, ScheduleWritten) and answer.created:
                self._created(answer.schedule, write.by)

    def _created(self, schedule: Schedule, by: str) -> None:
        definition = schedule.definition
        trigger, action = definition.trigger, f"{schedule.flow}.{definition.action}"
        log.info(
            "schedule %s/%s/%s was created: %s, %s",
            schedule.flow,
            schedule.scope,
            schedule.name,
            action,
            trigger.words,
            extra={
                "event": "schedule.created",
                "schedule_id": schedule.id,
                "flow": schedule.flow,
                "scope": str(schedule.scope),
                "schedule": schedule.name,
                "workspace": definition.workspace or workspace_of(schedule.scope),
                "action": action,
                "queue": self._queues.get(action, DEFAULT_QUEUE),
                "rule": trigger.words,
                "zone": trigger.tz,
                "interval_ms": trigger.interval_ms if isinstance(trigger, Every) else None,
                "by": by,
            },
        )
