"""Fills a large database for the dashboard: millions of schedules and jobs, written by SQL."""

from __future__ import annotations

import asyncio

import psycopg

from duly.stores import open_store

TRIGGERS = """
CASE n %% 20
    WHEN 0 THEN '{"expression":"*/15 * * * *","kind":"cron","tz":"UTC","v":1}'
    WHEN 1 THEN '{"expression":"0 * * * *","kind":"cron","tz":"UTC","v":1}'
    ELSE '{"expression":"' || n %% 60 || ' ' || n %% 24 || ' * * *","kind":"cron","tz":"UTC","v":1}'
END
"""
DOCUMENTS = f"""
INSERT INTO duly_resources
SELECT 'schedules', 'user:' || n %% 200000, 'crm/digest-' || n, 'sch_' || lpad(n::text, 12, '0'), 1,
    CASE WHEN n %% 50 = 0 THEN 'paused' ELSE 'active' END, NULL,
    '{{"action":"send","trigger":' || {TRIGGERS} || ',"v":1}}', %(now)s, %(now)s
FROM generate_series(1, %(schedules)s) n
"""
RULES = f"""
INSERT INTO duly_schedule_rules
    (row_id, schedule_id, flow, scope, name, trigger_json, zone, hand_over, policies)
SELECT n, 'sch_' || lpad(n::text, 12, '0'), 'crm', 'user:' || n %% 200000, 'digest-' || n,
    {TRIGGERS}, 'UTC', 'jobs', '{{}}'
FROM generate_series(1, %(schedules)s) n WHERE n %% 50 <> 0
"""
INDEX = """
INSERT INTO duly_schedule_index
    (row_id, flow, priority, trigger_version, nominal_ms, run_at_ms, version, hand_over)
SELECT n, 'crm', 0, 1, at, at, 1, 'jobs' FROM (
    SELECT n, (%(now)s / 900000 + 1 + n %% 96) * 900000 AS at
    FROM generate_series(1, %(schedules)s) n WHERE n %% 50 <> 0) s
"""
JOBS = """
INSERT INTO duly_jobs (id, action, queue, workspace, scope, state, priority, place, run_at_ms,
    created_at_ms, finished_at_ms, attempts, max_attempts, careful, fence, events, retry,
    timeout_ms, lease_until_ms, cancel_asked, schedule_id, nominal_ms, input)
SELECT 'job_' || lpad(n::text, 12, '0'), 'crm.send', 'queue-' || n %% 20, 'space-' || n %% 500,
    'user:' || n %% 200000, state, 0, at, at, at,
    CASE WHEN state IN ('succeeded', 'dead', 'cancelled') THEN at END, 1, 5, 0, 1, 3,
    '{"attempts":5}', 300000, CASE WHEN state = 'processing' THEN %(now)s + 3600000 END, 0,
    'sch_' || lpad(n::text, 12, '0'), at, '{"to":"a@example.org"}'
FROM (SELECT n, %(now)s - (%(jobs)s - n) * 80 AS at,
    CASE WHEN n %% 1000 = 7 THEN 'dead' WHEN n %% 300 = 5 THEN 'cancelled'
         WHEN n > %(jobs)s - 60000 AND n %% 3 = 0 THEN 'queued'
         WHEN n > %(jobs)s - 100 AND n %% 3 = 1 THEN 'processing' ELSE 'succeeded' END AS state
    FROM generate_series(1, %(jobs)s) n) s
"""
EVENTS = """
INSERT INTO duly_job_events (job_id, seq, at_ms, state, attempt)
SELECT id, 1, created_at_ms, 'queued', 0 FROM duly_jobs WHERE id > %(last)s
"""
LINE = """
INSERT INTO duly_job_line (queue, place, id, workspace, action, run_at_ms)
SELECT queue, place, id, workspace, action, run_at_ms FROM duly_jobs
WHERE state = 'queued'
"""
MARKS = """
INSERT INTO duly_job_marks (state, at_ms, jobs, ids)
SELECT state, COALESCE(finished_at_ms, lease_until_ms), count(*), json_agg(id) FROM duly_jobs
WHERE state <> 'queued' GROUP BY 1, 2
"""
LEDGER = """
INSERT INTO duly_occurrences (schedule_id, nominal_ms, flow, scope, name, run_at_ms, state, missed,
    row_version, position, at_ms, times, job_id, fired_at_ms, ended_at_ms)
SELECT schedule_id, nominal_ms, 'crm', scope, 'digest', run_at_ms, 'succeeded', 0, 0, 0, run_at_ms,
    1, id, run_at_ms + 40, finished_at_ms FROM duly_jobs WHERE finished_at_ms IS NOT NULL
"""


def fill(url: str, schedules: int, jobs: int) -> None:
    """Write schedules with their index rows, and jobs with their occurrences."""
    asyncio.run(open_store(url).close())
    with psycopg.connect(url, autocommit=True) as connection:
        (now,) = connection.execute(
            "SELECT (extract(epoch FROM now()) * 1000)::bigint"
        ).fetchone() or (0,)
        values = {
            "now": now,
            "schedules": schedules,
            "jobs": jobs,
            "last": f"job_{max(0, jobs - 20_000):012}",
        }
        for statement in (DOCUMENTS, RULES, INDEX, JOBS, EVENTS, LINE, MARKS, LEDGER):
            connection.execute(statement, values)
        connection.execute("VACUUM ANALYZE")
