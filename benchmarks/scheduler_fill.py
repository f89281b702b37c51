"""Stores many schedules: a few are created, the others are copies of them made by SQL.

Copies have their own ids and owners, a document and a rule like the originals, and times spread
evenly over the 30 days after the next hour. A million takes less than a minute.
"""

from __future__ import annotations

from benchmarks.scheduler_rows import TRIGGERS, Desk, create, now_ms
from duly.engine.upkeep.zone_version import rules_in_use
from duly.stores.port import Store

HOUR_MS = 3_600_000
MONTH_S = 30 * 86_400
SERIES = {
    True: "WITH s AS (SELECT generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS i)",
    False: "WITH RECURSIVE s(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM s WHERE i < :last)",
}
NUMBER = {True: "lpad(i::text, 31, '0')", False: "printf('%031d', i)"}
DOCUMENTS = (
    "INSERT INTO duly_resources (collection, scope, name, id, version, state, error, body, "
    "created_at_ms, updated_at_ms) {series} SELECT d.collection, 'user:' || i, d.name, "
    "'sch_f' || {number}, d.version, d.state, d.error, d.body, d.created_at_ms, d.updated_at_ms "
    "FROM s JOIN duly_resources d ON d.scope = 'user:' || (i % :kinds)"
)
RULES = (
    "INSERT INTO duly_schedule_rules (schedule_id, flow, scope, name, trigger_json, zone, "
    "hand_over, policies) {series} SELECT 'sch_f' || {number}, r.flow, 'user:' || i, r.name, "
    "r.trigger_json, r.zone, r.hand_over, r.policies "
    "FROM s JOIN duly_schedule_rules r ON r.scope = 'user:' || (i % :kinds) "
    "AND r.schedule_id NOT LIKE 'sch_f%'"
)
INDEX = (
    "INSERT INTO duly_schedule_index (row_id, flow, priority, trigger_version, nominal_ms, "
    "run_at_ms, version, hand_over) SELECT row_id, flow, 0, 1, "
    "{at}, {at}, 1, 'jobs' FROM duly_schedule_rules WHERE schedule_id LIKE 'sch_f%'"
)
AT = f":now_ms + {HOUR_MS} + (row_id * 7919 % {MONTH_S}) * 1000"


async def fill(desk: Desk, store: Store, count: int) -> None:
    """Store `count` schedules in empty tables."""
    kinds = len(TRIGGERS)
    await create(store, kinds)
    # The times of the copies are made up; this keeps a keeper from recomputing them.
    await store.recompute_zones(rules_in_use())
    given = {"first": kinds, "last": count - 1, "kinds": kinds}
    words = {"series": SERIES[desk.is_postgresql], "number": NUMBER[desk.is_postgresql]}
    desk.run(DOCUMENTS.format(**words), **given)
    desk.run(RULES.format(**words), **given)
    desk.run(INDEX.format(at=AT), now_ms=now_ms())
    desk.settle()
