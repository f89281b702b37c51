-- Each step may run again: the server commits every statement that changes the schema.
CREATE TABLE IF NOT EXISTS {p}schema (
    version int PRIMARY KEY,
    readable_from int NOT NULL,
    updated_at_ms bigint NOT NULL,
    tz_version longtext
);

-- Rows that are locked in place of names, until a transaction ends.
CREATE TABLE IF NOT EXISTS {p}guards (number int PRIMARY KEY);
INSERT IGNORE INTO {p}guards (number) WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 511) SELECT number FROM numbers;

-- Owners may have names of a thousand characters, more than a key can hold: the digest is the key,
-- and the beginnings of the names are the index that finds it.
CREATE TABLE IF NOT EXISTS {p}resources (
    collection varchar(128) NOT NULL,
    scope varchar(1100) NOT NULL,
    name varchar(400) NOT NULL,
    id varchar(255) NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    state varchar(32),
    error longtext,
    body longtext NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    hand_over varchar(32),
    runs_had int,
    finished_at_ms bigint,
    temporary int,
    digest binary(32) GENERATED ALWAYS AS
        (UNHEX(SHA2(CONCAT(LENGTH(collection), ' ', LENGTH(scope), ' ', collection, scope, name), 256))) STORED,
    UNIQUE KEY resources_key (digest),
    KEY resources_names (collection, scope(250), name(250)),
    KEY resources_search (name(250), scope(250)),
    KEY resources_states (state, name(250), scope(250)),
    KEY resources_hand_over (hand_over, name(250), scope(250)),
    KEY resources_counted (scope(250), state, name(250)),
    KEY resources_finished (state, finished_at_ms, id),
    KEY resources_temporary (temporary, finished_at_ms, id)
);

CREATE TABLE IF NOT EXISTS {p}resource_index (
    collection varchar(128) NOT NULL,
    attribute varchar(128) NOT NULL,
    value varchar(1100) NOT NULL,
    scope varchar(1100) NOT NULL,
    name varchar(400) NOT NULL,
    KEY resource_index_value (collection, attribute, value(250), scope(100)),
    KEY resource_index_document (collection, scope(250), name(250))
);

CREATE TABLE IF NOT EXISTS {p}schedule_rules (
    row_id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    schedule_id varchar(255) NOT NULL,
    flow varchar(128) NOT NULL,
    scope varchar(1100) NOT NULL,
    name varchar(255) NOT NULL,
    trigger_json longtext NOT NULL,
    zone varchar(255) NOT NULL,
    hand_over varchar(32) NOT NULL,
    policies longtext NOT NULL,
    not_found int NOT NULL DEFAULT 0,
    digest binary(32) GENERATED ALWAYS AS
        (UNHEX(SHA2(CONCAT(LENGTH(flow), ' ', LENGTH(scope), ' ', flow, scope, name), 256))) STORED,
    UNIQUE KEY schedule_rules_id (schedule_id),
    UNIQUE KEY schedule_rules_digest (digest),
    KEY schedule_rules_key (flow, scope(250), name)
);

CREATE TABLE IF NOT EXISTS {p}schedule_index (
    row_id bigint NOT NULL PRIMARY KEY,
    flow varchar(128) NOT NULL,
    priority int NOT NULL,
    trigger_version int NOT NULL,
    nominal_ms bigint NOT NULL,
    run_at_ms bigint,
    runs_left int,
    version bigint NOT NULL,
    error longtext,
    hand_over varchar(32) NOT NULL,
    entered bigint NOT NULL DEFAULT 0,
    is_quarantined int GENERATED ALWAYS AS (CASE WHEN error IS NULL THEN NULL ELSE 1 END) STORED,
    KEY schedule_index_due (hand_over, flow, run_at_ms, priority DESC, row_id),
    KEY schedule_index_error (is_quarantined, row_id),
    FOREIGN KEY (row_id) REFERENCES {p}schedule_rules (row_id) ON DELETE CASCADE
);

CREATE TABLE IF NOT EXISTS {p}schedule_events (
    seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    schedule_id varchar(255) NOT NULL,
    kind varchar(64) NOT NULL,
    at_ms bigint NOT NULL,
    actor longtext NOT NULL,
    detail longtext NOT NULL,
    KEY schedule_events_schedule (schedule_id, seq)
);

CREATE TABLE IF NOT EXISTS {p}occurrences (
    schedule_id varchar(255) NOT NULL,
    nominal_ms bigint NOT NULL,
    flow varchar(128) NOT NULL,
    scope varchar(1100) NOT NULL,
    name varchar(255) NOT NULL,
    run_at_ms bigint NOT NULL,
    state varchar(32) NOT NULL,
    missed int NOT NULL DEFAULT 0,
    row_version bigint NOT NULL DEFAULT 0,
    claim_id varchar(600),
    position int NOT NULL DEFAULT 0,
    at_ms bigint NOT NULL,
    until_ms bigint,
    times int NOT NULL DEFAULT 1,
    job_id varchar(255),
    reason longtext,
    fired_at_ms bigint,
    ended_at_ms bigint,
    lease_until_ms bigint,
    tries int,
    delivery varchar(64),
    PRIMARY KEY (schedule_id, nominal_ms),
    KEY occurrences_claim (claim_id, position),
    KEY occurrences_job (job_id),
    KEY occurrences_dispatching (state, lease_until_ms),
    KEY occurrences_lost (state, until_ms)
);

CREATE TABLE IF NOT EXISTS {p}ledger_counts (
    seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    flow varchar(128) NOT NULL,
    outcome varchar(64) NOT NULL,
    times bigint NOT NULL
);
CREATE OR REPLACE TRIGGER {i}ledger_added AFTER INSERT ON {p}occurrences FOR EACH ROW
    INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (NEW.flow,
    CASE WHEN NEW.state = 'missed' AND NEW.reason = 'paused' THEN 'paused' ELSE NEW.state END, NEW.times);
CREATE OR REPLACE TRIGGER {i}ledger_changed AFTER UPDATE ON {p}occurrences FOR EACH ROW
    INSERT INTO {p}ledger_counts (flow, outcome, times)
    SELECT flow, outcome, SUM(times) FROM (
    SELECT OLD.flow AS flow, CASE WHEN OLD.state = 'missed' AND OLD.reason = 'paused' THEN 'paused'
        ELSE OLD.state END AS outcome, -OLD.times AS times
    UNION ALL SELECT NEW.flow, CASE WHEN NEW.state = 'missed' AND NEW.reason = 'paused' THEN 'paused'
        ELSE NEW.state END, NEW.times) changed GROUP BY flow, outcome HAVING SUM(times) <> 0;
CREATE OR REPLACE TRIGGER {i}ledger_removed AFTER DELETE ON {p}occurrences FOR EACH ROW
    INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (OLD.flow,
    CASE WHEN OLD.state = 'missed' AND OLD.reason = 'paused' THEN 'paused' ELSE OLD.state END, -OLD.times);

CREATE TABLE IF NOT EXISTS {p}running (
    schedule_id varchar(255) NOT NULL PRIMARY KEY,
    job_id varchar(255) NOT NULL,
    since_ms bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS {p}jobs (
    id varchar(255) NOT NULL PRIMARY KEY,
    action varchar(255) NOT NULL,
    queue varchar(255) NOT NULL,
    workspace varchar(255) NOT NULL,
    scope varchar(1100) NOT NULL,
    state varchar(32) NOT NULL,
    priority int NOT NULL,
    place bigint NOT NULL,
    run_at_ms bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    finished_at_ms bigint,
    attempts int NOT NULL,
    max_attempts int NOT NULL,
    careful int NOT NULL,
    fence int NOT NULL,
    events int NOT NULL,
    retry longtext NOT NULL,
    timeout_ms bigint NOT NULL,
    worker varchar(255),
    lease_until_ms bigint,
    cancel_asked int NOT NULL,
    idempotency_key varchar(255),
    schedule_id varchar(255),
    nominal_ms bigint,
    correlation_id varchar(255),
    metadata longtext,
    input longtext NOT NULL,
    result longtext,
    error longtext,
    progress longtext,
    policies longtext,
    turn varchar(32),
    in_line int NOT NULL DEFAULT 0,
    claimed_at_ms bigint,
    waits int NOT NULL DEFAULT 0,
    took_ms bigint,
    unstarted int,
    entered bigint NOT NULL DEFAULT 0,
    KEY jobs_due (waits, queue, run_at_ms, id),
    KEY jobs_in_line (in_line, schedule_id, run_at_ms, nominal_ms, id),
    KEY jobs_schedule (schedule_id, id),
    KEY jobs_correlation (correlation_id, id)
);

CREATE TABLE IF NOT EXISTS {p}job_events (
    job_id varchar(255) NOT NULL,
    seq int NOT NULL,
    at_ms bigint NOT NULL,
    state varchar(32) NOT NULL,
    attempt int NOT NULL,
    actor longtext,
    reason longtext,
    ended_as varchar(64),
    took_ms bigint,
    PRIMARY KEY (job_id, seq)
);

CREATE TABLE IF NOT EXISTS {p}job_line (
    queue varchar(255) NOT NULL,
    place bigint NOT NULL,
    id varchar(255) NOT NULL,
    workspace varchar(255) NOT NULL,
    action varchar(255) NOT NULL,
    run_at_ms bigint NOT NULL,
    entered bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, place, id),
    KEY job_line_pairs (queue, workspace, place, id)
);

CREATE TABLE IF NOT EXISTS {p}job_marks (
    seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    state varchar(32) NOT NULL,
    at_ms bigint NOT NULL,
    jobs int NOT NULL,
    ids longtext NOT NULL,
    entered bigint NOT NULL DEFAULT 0,
    KEY job_marks_times (state, at_ms, seq)
);

CREATE TABLE IF NOT EXISTS {p}idempotency (
    workspace varchar(255) NOT NULL,
    action varchar(255) NOT NULL,
    idempotency_key varchar(255) NOT NULL,
    job_id varchar(255) NOT NULL,
    input_digest varchar(255) NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (workspace, action, idempotency_key),
    KEY idempotency_expires (expires_at_ms)
);

CREATE TABLE IF NOT EXISTS {p}queues (
    queue varchar(255) NOT NULL PRIMARY KEY,
    paused int NOT NULL,
    note longtext,
    job_limit int,
    workspace_limit int NOT NULL
);

CREATE TABLE IF NOT EXISTS {p}queue_tokens (
    queue varchar(255) NOT NULL,
    workspace varchar(255) NOT NULL,
    number int NOT NULL,
    owner varchar(255) NOT NULL,
    fence bigint NOT NULL,
    leased_until_ms bigint NOT NULL,
    served_at_ms bigint NOT NULL,
    PRIMARY KEY (queue, workspace, number)
);

CREATE TABLE IF NOT EXISTS {p}workers (
    id varchar(255) NOT NULL PRIMARY KEY,
    host longtext NOT NULL,
    pid bigint NOT NULL,
    queues longtext NOT NULL,
    slots int NOT NULL,
    running int NOT NULL,
    stopping int NOT NULL,
    started_at_ms bigint NOT NULL,
    beat_at_ms bigint NOT NULL,
    actions longtext
);

CREATE TABLE IF NOT EXISTS {p}locks (
    name varchar(255) NOT NULL PRIMARY KEY,
    owner varchar(255),
    fence bigint NOT NULL,
    locked_until_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS {p}audit (
    seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at_ms bigint NOT NULL,
    actor longtext NOT NULL,
    action varchar(255) NOT NULL,
    target varchar(600) NOT NULL,
    outcome varchar(64) NOT NULL,
    detail longtext NOT NULL,
    KEY audit_target (target, seq)
);
