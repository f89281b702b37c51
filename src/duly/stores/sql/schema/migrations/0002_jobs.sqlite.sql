CREATE TABLE {p}jobs (
    id TEXT NOT NULL PRIMARY KEY,
    action TEXT NOT NULL,
    queue TEXT NOT NULL,
    workspace TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    place INTEGER NOT NULL,
    run_at_ms INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    careful INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    events INTEGER NOT NULL,
    retry TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    worker TEXT,
    lease_until_ms INTEGER,
    cancel_asked INTEGER NOT NULL,
    idempotency_key TEXT,
    schedule_id TEXT,
    nominal_ms INTEGER,
    correlation_id TEXT,
    metadata TEXT,
    input TEXT NOT NULL,
    result TEXT,
    error TEXT,
    progress TEXT
);
CREATE INDEX {i}jobs_line ON {p}jobs (queue, careful, place, id) WHERE state = 'queued';
CREATE INDEX {i}jobs_pairs ON {p}jobs (queue, workspace, careful, place, id)
    WHERE state = 'queued';
CREATE INDEX {i}jobs_due ON {p}jobs (queue, run_at_ms, id) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX {i}jobs_leases ON {p}jobs (lease_until_ms) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX {i}jobs_ended ON {p}jobs (state, finished_at_ms) WHERE finished_at_ms IS NOT NULL;
CREATE INDEX {i}jobs_schedule ON {p}jobs (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX {i}jobs_correlation ON {p}jobs (correlation_id, id) WHERE correlation_id IS NOT NULL;

CREATE TABLE {p}job_events (
    job_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    actor TEXT,
    reason TEXT,
    ended_as TEXT,
    PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;

CREATE TABLE {p}idempotency (
    workspace TEXT NOT NULL,
    action TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    job_id TEXT NOT NULL,
    input_digest TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace, action, idempotency_key)
) WITHOUT ROWID;
CREATE INDEX {i}idempotency_expires ON {p}idempotency (expires_at_ms);

CREATE TABLE {p}queues (
    queue TEXT NOT NULL PRIMARY KEY,
    paused INTEGER NOT NULL,
    note TEXT,
    job_limit INTEGER,
    workspace_limit INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE {p}queue_tokens (
    queue TEXT NOT NULL,
    workspace TEXT NOT NULL,
    number INTEGER NOT NULL,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    leased_until_ms INTEGER NOT NULL,
    served_at_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, workspace, number)
) WITHOUT ROWID;

CREATE TABLE {p}workers (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    queues TEXT NOT NULL,
    slots INTEGER NOT NULL,
    running INTEGER NOT NULL,
    stopping INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    beat_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE {p}locks (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT,
    fence INTEGER NOT NULL,
    locked_until_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
