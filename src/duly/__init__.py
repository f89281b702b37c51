"""Duly: a scheduler and durable job queue for applications with many users.

The public names. Everything not listed here may change without notice.
"""

from duly.clock import Clock, SystemClock
from duly.errors import (
    BackendUnavailable,
    Conflict,
    DulyError,
    InvalidInput,
    InvalidInstant,
    InvalidTrigger,
    NotFound,
    UnknownTrigger,
)
from duly.occurrences import Claimed, IndexRow
from duly.resources import ResourceCollection, ScheduleCollection
from duly.retries import RetryPolicy
from duly.schedules import Misfire, Policies
from duly.scopes import SYSTEM, Scope, user, workspace
from duly.settings import Settings
from duly.store import ScheduleIndex, ScheduleKey, Store
from duly.stores import open_store
from duly.triggers import (
    Cron,
    Every,
    ExplainedTime,
    Explanation,
    Once,
    Trigger,
    Weekly,
    cron,
    every,
    next_after_many,
    once,
    parse_trigger,
    weekly,
)

__all__ = [
    "BackendUnavailable",
    "Claimed",
    "Clock",
    "Conflict",
    "Cron",
    "DulyError",
    "Every",
    "ExplainedTime",
    "Explanation",
    "IndexRow",
    "InvalidInput",
    "InvalidInstant",
    "InvalidTrigger",
    "Misfire",
    "NotFound",
    "Once",
    "Policies",
    "ResourceCollection",
    "RetryPolicy",
    "SYSTEM",
    "ScheduleCollection",
    "ScheduleIndex",
    "ScheduleKey",
    "Scope",
    "Settings",
    "Store",
    "SystemClock",
    "Trigger",
    "UnknownTrigger",
    "Weekly",
    "cron",
    "every",
    "next_after_many",
    "once",
    "open_store",
    "parse_trigger",
    "user",
    "weekly",
    "workspace",
]
