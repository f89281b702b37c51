"""Duly: a scheduler and durable job queue for applications with many users.

The public names. Everything not listed here may change without notice.
"""

from duly.acting import Acting
from duly.admin import Admin
from duly.app import Duly, ensure_schedule
from duly.client import Client
from duly.clock import Clock, SystemClock
from duly.context import Context
from duly.dispatch import (
    BodyLimits,
    Gateway,
    HttpOptions,
    ResolveContext,
    TickOptions,
    hmac_sha1,
    hmac_sha256,
    standard_webhooks,
)
from duly.errors import (
    BackendUnavailable,
    Conflict,
    DulyError,
    InternalError,
    InvalidInput,
    InvalidInstant,
    InvalidTrigger,
    NotFound,
    UnknownTrigger,
)
from duly.flows import Action, Flow
from duly.job_store import Enqueued, JobFilter, QueueSettings, Retention
from duly.jobs import Job, JobId, JobState
from duly.ledger import Occurrence, OccurrenceState
from duly.loops import Abort, KeeperOptions, PlannerOptions, WorkerOptions
from duly.occurrences import Claimed, IndexRow
from duly.principals import Principal
from duly.resolved import ScheduleConfig
from duly.resources import Ensured, ResourceCollection, ResourceKind, ScheduleCollection
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
    LocalOnce,
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
from duly.webhooks import BodyPath, Routed, UnsignedHeader, attribute_of, body_path, unsigned_header

__all__ = [
    "Abort",
    "Acting",
    "Action",
    "Admin",
    "BackendUnavailable",
    "BodyLimits",
    "BodyPath",
    "Claimed",
    "Client",
    "Clock",
    "Conflict",
    "Context",
    "Cron",
    "Duly",
    "DulyError",
    "Enqueued",
    "Ensured",
    "Every",
    "ExplainedTime",
    "Explanation",
    "Flow",
    "Gateway",
    "HttpOptions",
    "IndexRow",
    "InternalError",
    "InvalidInput",
    "InvalidInstant",
    "InvalidTrigger",
    "Job",
    "JobFilter",
    "JobId",
    "JobState",
    "KeeperOptions",
    "LocalOnce",
    "Misfire",
    "NotFound",
    "Occurrence",
    "OccurrenceState",
    "Once",
    "PlannerOptions",
    "Policies",
    "Principal",
    "QueueSettings",
    "ResolveContext",
    "ResourceCollection",
    "ResourceKind",
    "Retention",
    "RetryPolicy",
    "Routed",
    "SYSTEM",
    "ScheduleCollection",
    "ScheduleConfig",
    "ScheduleIndex",
    "ScheduleKey",
    "Scope",
    "Settings",
    "Store",
    "SystemClock",
    "TickOptions",
    "Trigger",
    "UnknownTrigger",
    "UnsignedHeader",
    "Weekly",
    "WorkerOptions",
    "attribute_of",
    "body_path",
    "cron",
    "ensure_schedule",
    "every",
    "hmac_sha1",
    "hmac_sha256",
    "next_after_many",
    "once",
    "open_store",
    "parse_trigger",
    "standard_webhooks",
    "unsigned_header",
    "user",
    "weekly",
    "workspace",
]
