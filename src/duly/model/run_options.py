"""Run options of jobs: queue, retry policy, timeout and delivery.

One rule, however an action is started (enqueue, schedule, dispatch, webhook, extra run, backfill):
explicit values of the caller or schedule win over the action's, which win over the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from duly.model.jobs import DEFAULT_QUEUE, DEFAULT_RETRY, DEFAULT_TIMEOUT_MS, Delivery
from duly.model.retries import RetryPolicy
from duly.model.schedules import Policies


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Run options of a job, or those an action declares."""

    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = DEFAULT_RETRY
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    delivery: Delivery = "at_least_once"


DEFAULTS = RunOptions()
RUN_FIELDS = tuple(RunOptions.__dataclass_fields__)


def choose(explicit: Mapping[str, Any], declared: RunOptions = DEFAULTS) -> RunOptions:
    """Return the options of a job: `explicit` values that are not None, else declared ones."""
    given = {name: explicit[name] for name in RUN_FIELDS if explicit.get(name) is not None}
    return replace(declared, **given) if given else declared


def options_of(policies: Policies, declared: RunOptions = DEFAULTS) -> RunOptions:
    """Return the options of a schedule's jobs; a schedule sets no queue."""
    explicit = {
        "retry": policies.retry,
        "timeout_ms": policies.timeout_ms,
        "delivery": policies.delivery,
    }
    return choose(explicit, declared)
