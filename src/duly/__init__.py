"""Duly: a scheduler and durable job queue for applications with many users.

This module lists the public names; everything else may change without notice.
"""

from duly.app import Config, Duly, ensure_schedule
from duly.clock import Clock, SystemClock
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
from duly.flows.acting import Acting
from duly.flows.client import Client
from duly.flows.collections import Ensured, ResourceCollection, ResourceKind, ScheduleCollection
from duly.flows.context import Context
from duly.flows.flow import Action, Flow
from duly.flows.resolved import ScheduleConfig
from duly.flows.webhook_routes import (
    BodyPath,
    Routed,
    UnsignedHeader,
    attribute_of,
    body_path,
    unsigned_header,
)
from duly.model.index_rows import Claimed, IndexRow
from duly.model.jobs import Job, JobId, JobState
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.principals import Principal
from duly.model.queues import QueueSettings
from duly.model.retries import RetryPolicy
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Misfire, Policies
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.model.stored_jobs import Enqueued, JobFilter, Retention
from duly.operate.admin import Admin
from duly.runtime import Abort, KeeperOptions, PlannerOptions, WorkerOptions
from duly.settings import Settings
from duly.stores import open_store
from duly.stores.port import ScheduleIndex, Store
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
    "Config",
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
