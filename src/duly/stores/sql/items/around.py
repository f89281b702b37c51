"""Items around the jobs: idempotency keys, queues, tokens, workers, locks and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from duly.engine.kinds import (
    IDEMPOTENCY_KEY,
    LOCK,
    QUEUE,
    SETTING,
    TOKEN,
    WORKER,
    ZONE_RULES,
    StoredKey,
    StoredLock,
    StoredSetting,
    StoredToken,
)
from duly.engine.transaction import Change, Key
from duly.model.jobs import WorkerId
from duly.model.queues import QueueSettings, WorkerInfo
from duly.stores.sql.db import Db
from duly.stores.sql.items.mapped import Mapped, Values


def _key(row: Row[Any]) -> StoredKey:
    return StoredKey(
        row.workspace,
        row.action,
        row.idempotency_key,
        row.job_id,
        row.input_digest,
        row.expires_at_ms,
    )


def _key_values(item: StoredKey) -> Values:
    return {
        "workspace": item.workspace,
        "action": item.action,
        "idempotency_key": item.key,
        "job_id": item.job_id,
        "input_digest": item.digest,
        "expires_at_ms": item.expires_at_ms,
    }


def queue_of(row: Row[Any]) -> QueueSettings:
    """Return the queue settings stored in a row."""
    return QueueSettings(row.queue, bool(row.paused), row.note, row.job_limit, row.workspace_limit)


def _queue_values(item: QueueSettings) -> Values:
    return {
        "queue": item.queue,
        "paused": int(item.is_paused),
        "note": item.note,
        "job_limit": item.job_limit,
        "workspace_limit": item.workspace_limit,
    }


def _token(row: Row[Any]) -> StoredToken:
    return StoredToken(
        row.queue,
        row.workspace,
        row.number,
        row.owner,
        row.fence,
        row.leased_until_ms,
        row.served_at_ms,
    )


def worker_of(row: Row[Any]) -> WorkerInfo:
    """Return the worker stored in a row."""
    return WorkerInfo(
        WorkerId(row.id),
        row.host,
        row.pid,
        tuple(json.loads(row.queues)),
        row.slots,
        row.running,
        bool(row.stopping),
        row.started_at_ms,
        row.beat_at_ms,
        None if row.actions is None else tuple(json.loads(row.actions)),
    )


def _worker_values(item: WorkerInfo) -> Values:
    return {
        "id": item.id,
        "host": item.host,
        "pid": item.pid,
        "queues": json.dumps(item.queues),
        "slots": item.slots,
        "running": item.running,
        "stopping": int(item.is_stopping),
        "started_at_ms": item.started_at_ms,
        "beat_at_ms": item.beat_at_ms,
        "actions": None if item.actions is None else json.dumps(item.actions),
    }


def _lock(row: Row[Any]) -> StoredLock:
    return StoredLock(row.name, row.owner, row.fence, row.locked_until_ms, row.updated_at_ms)


def _lock_values(item: StoredLock) -> Values:
    return {
        "name": item.name,
        "owner": item.owner,
        "fence": item.fence,
        "locked_until_ms": item.until_ms,
        "updated_at_ms": item.updated_at_ms,
    }


KEYS = Mapped(
    IDEMPOTENCY_KEY, "idempotency", ("workspace", "action", "idempotency_key"), _key, _key_values
)
QUEUES = Mapped(QUEUE, "queues", ("queue",), queue_of, _queue_values)
TOKENS = Mapped(
    TOKEN, "queue_tokens", ("queue", "workspace", "number"), _token, StoredToken._asdict
)
WORKERS = Mapped(WORKER, "workers", ("id",), worker_of, _worker_values)
LOCKS = Mapped(LOCK, "locks", ("name",), _lock, _lock_values)


def _setting(row: Row[Any]) -> StoredSetting:
    return StoredSetting(ZONE_RULES, row.tz_version)


class SettingColumns(Mapped[StoredSetting]):
    """The settings of the whole store: columns of the single row of the schema table."""

    def rows(self, db: Db, keys: Sequence[Key], *, hold: bool) -> dict[Key, Row[Any]]:
        """Return the settings that have a value."""
        row = db.run(f"SELECT tz_version FROM {{p}}schema{' {lock}' if hold else ''}").one()
        return {key: row for key in keys if key == (ZONE_RULES,) and row.tz_version is not None}

    def write(self, db: Db, changes: Mapping[Key, Change]) -> None:
        """Write settings; they are never removed."""
        for change in changes.values():
            db.run("UPDATE {p}schema SET tz_version = :value", value=change.after.value)


SETTINGS = SettingColumns(
    SETTING, "schema", ("version",), _setting, lambda item: {"tz_version": item.value}
)
