"""What people may say of a job when they ask for one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypedDict

from duly.model.jobs import Delivery
from duly.model.retries import RetryPolicy
from duly.model.scopes import Scope


class JobOptions(TypedDict, total=False):
    """What may be said of a job; what is not said is the action's own, or the default."""

    queue: str
    workspace: str | None
    """Whose turn it is, where turns are taken; else it follows from the scope."""
    scope: Scope | str
    """Who it runs as."""
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    """Instead of run_at: so long from now, by the store's clock."""
    retry: RetryPolicy
    timeout: timedelta
    delivery: Delivery
    key: str | None
    """Idempotency key: unique for (workspace, action)."""
    key_ttl: timedelta
    correlation_id: str | None
    metadata: Mapping[str, object] | None
    """Facts that anybody may see."""
