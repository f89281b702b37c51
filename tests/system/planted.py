"""Bugs that a process plants in itself before it works: the audit must report what they do."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from sqlalchemy import Engine, event

from duly.engine.jobs import jobs as engine_jobs
from duly.model.jobs import JobState
from duly.rules.outcomes import Loss


def forget_fences() -> None:
    """Store a completion whoever reports it, and whenever."""

    def without_fence(
        _connection: object, _cursor: object, statement: str, values: Any, *_: object
    ) -> tuple[str, Any]:
        fenced = "AND j.fence = CASE j.state WHEN 'processing' THEN f.fence END"
        return statement.replace(fenced, ""), values

    event.listen(Engine, "before_cursor_execute", without_fence, retval=True)


def charge_losses() -> None:
    """Charge a job for the loss of its worker, whether its handler had started or not."""
    decide_loss = cast(Any, engine_jobs).decide_loss

    def charging(job: Any) -> Loss:
        loss: Loss = decide_loss(job)
        if JobState.QUEUED in loss.path and job.attempts + 1 >= job.max_attempts:
            return Loss((JobState.FAILED, JobState.DEAD), loss.start_mode, 1)
        return loss._replace(charge=1)

    cast(Any, engine_jobs).decide_loss = charging


BUGS: Mapping[str, Callable[[], None]] = {"fence": forget_fences, "loss": charge_losses}
