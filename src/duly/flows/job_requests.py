"""The options of a job when it is enqueued."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypedDict

from duly.model.jobs import Delivery
from duly.model.retries import RetryPolicy
from duly.model.scopes import Scope


class JobOptions(TypedDict, total=False):
    """The options of a job; omitted ones are the action's, or the defaults."""

    queue: str
    workspace: str | None
    """The workspace that the job counts in, for fairness; by default from the scope."""
    scope: Scope | str
    """The owner that the job runs as."""
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    """Instead of run_at: time from now, by the store's clock."""
    retry: RetryPolicy
    timeout: timedelta
    delivery: Delivery
    key: str | None
    """Idempotency key: unique for (workspace, action)."""
    key_ttl: timedelta
    correlation_id: str | None
    metadata: Mapping[str, object] | None
    """Facts that anyone may see."""
