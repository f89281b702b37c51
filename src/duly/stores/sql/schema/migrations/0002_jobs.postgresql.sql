CREATE TABLE {p}jobs (
    id text COLLATE "C" PRIMARY KEY,
    action text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    place bigint NOT NULL,
    run_at_ms bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    finished_at_ms bigint,
    attempts integer NOT NULL,
    max_attempts integer NOT NULL,
    careful integer NOT NULL,
    fence integer NOT NULL,
    events integer NOT NULL,
    retry text NOT NULL,
    timeout_ms bigint NOT NULL,
    worker text COLLATE "C",
    lease_until_ms bigint,
    cancel_asked integer NOT NULL,
    idempotency_key text COLLATE "C",
    schedule_id text COLLATE "C",
    nominal_ms bigint,
    correlation_id text COLLATE "C",
    metadata text,
    input text NOT NULL,
    result text,
    error text,
    progress text
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX {i}jobs_line ON {p}jobs (queue, careful, place, id) WHERE state = 'queued';
CREATE INDEX {i}jobs_pairs ON {p}jobs (queue, workspace, careful, place, id)
    WHERE state = 'queued';
CREATE INDEX {i}jobs_due ON {p}jobs (queue, run_at_ms, id) WHERE state IN ('scheduled', 'retrying');
CREATE INDEX {i}jobs_leases ON {p}jobs (lease_until_ms) WHERE lease_until_ms IS NOT NULL;
CREATE INDEX {i}jobs_ended ON {p}jobs (state, finished_at_ms) WHERE finished_at_ms IS NOT NULL;
CREATE INDEX {i}jobs_schedule ON {p}jobs (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX {i}jobs_correlation ON {p}jobs (correlation_id, id) WHERE correlation_id IS NOT NULL;

CREATE TABLE {p}job_events (
    job_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    at_ms bigint NOT NULL,
    state text NOT NULL,
    attempt integer NOT NULL,
    actor text,
    reason text,
    ended_as text,
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE {p}idempotency (
    workspace text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    input_digest text NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (workspace, action, idempotency_key)
);
CREATE INDEX {i}idempotency_expires ON {p}idempotency (expires_at_ms);

CREATE TABLE {p}queues (
    queue text COLLATE "C" PRIMARY KEY,
    paused integer NOT NULL,
    note text,
    job_limit integer,
    workspace_limit integer NOT NULL
);

CREATE TABLE {p}queue_tokens (
    queue text COLLATE "C" NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    owner text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    leased_until_ms bigint NOT NULL,
    served_at_ms bigint NOT NULL,
    PRIMARY KEY (queue, workspace, number)
);

CREATE TABLE {p}workers (
    id text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    queues text NOT NULL,
    slots integer NOT NULL,
    running integer NOT NULL,
    stopping integer NOT NULL,
    started_at_ms bigint NOT NULL,
    beat_at_ms bigint NOT NULL
);

CREATE TABLE {p}locks (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C",
    fence bigint NOT NULL,
    locked_until_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL
);
