"""Log lines about created schedules, from the answers of the store.

One place logs what was created by users, agents, routes and declarations in code. No line holds
an input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from duly.model.documents import Refused
from duly.model.jobs import DEFAULT_QUEUE
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.model.schedules import Schedule
from duly.model.scopes import workspace_of
from duly.operate.observed import Observer, Observers
from duly.triggers import Every

log = logging.getLogger(__name__)

Answers = list[ScheduleWritten | Refused]


class ScheduleLog:
    """Logs schedules that are created; `queues` are those of actions, by full name."""

    def __init__(self, queues: Mapping[str, str]) -> None:
        self._queues = queues

    @property
    def observers(self) -> Observers:
        """Return what to log of the answers of a store.

        Of `put_schedules_in` it is logged before it is known whether the caller commits.
        """
        written = Observer(self._written)
        return {"put_schedules": written, "put_schedules_in": written}

    def _written(self, answers: Answers, *asked: Any) -> None:
        self._log_created(asked[-1], answers)

    def _log_created(self, writes: Sequence[ScheduleWrite], answers: Answers) -> None:
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
