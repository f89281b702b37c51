CREATE TABLE {p}schema (
    version INTEGER NOT NULL PRIMARY KEY,
    readable_from INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL
);

CREATE TABLE {p}resources (
    collection TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT,
    error TEXT,
    body TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (collection, scope, name)
);
CREATE UNIQUE INDEX {i}resources_id ON {p}resources (id);

CREATE TABLE {p}resource_index (
    collection TEXT NOT NULL,
    attribute TEXT NOT NULL,
    value TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (collection, attribute, value, scope, name)
) WITHOUT ROWID;
CREATE INDEX {i}resource_index_document ON {p}resource_index (collection, scope, name);

CREATE TABLE {p}schedule_rules (
    row_id INTEGER NOT NULL PRIMARY KEY,
    schedule_id TEXT NOT NULL,
    flow TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    trigger_json TEXT NOT NULL,
    zone TEXT NOT NULL,
    hand_over TEXT NOT NULL,
    policies TEXT NOT NULL
);
CREATE UNIQUE INDEX {i}schedule_rules_id ON {p}schedule_rules (schedule_id);
CREATE UNIQUE INDEX {i}schedule_rules_key ON {p}schedule_rules (flow, scope, name);

CREATE TABLE {p}schedule_index (
    row_id INTEGER NOT NULL PRIMARY KEY
        REFERENCES {p}schedule_rules (row_id) ON DELETE CASCADE,
    flow TEXT NOT NULL,
    priority INTEGER NOT NULL,
    trigger_version INTEGER NOT NULL,
    nominal_ms INTEGER NOT NULL,
    run_at_ms INTEGER,
    runs_left INTEGER,
    version INTEGER NOT NULL,
    error TEXT
);
-- SQLite ends every entry of an index with the number of the row, so ties are in its order.
CREATE INDEX {i}schedule_index_due ON {p}schedule_index (run_at_ms, priority DESC)
    WHERE run_at_ms IS NOT NULL;
CREATE INDEX {i}schedule_index_error ON {p}schedule_index (row_id) WHERE error IS NOT NULL;

CREATE TABLE {p}schedule_events (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    schedule_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX {i}schedule_events_schedule ON {p}schedule_events (schedule_id, seq);

CREATE TABLE {p}occurrences (
    schedule_id TEXT NOT NULL,
    nominal_ms INTEGER NOT NULL,
    flow TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    run_at_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    missed INTEGER NOT NULL,
    row_version INTEGER NOT NULL,
    claim_id TEXT,
    position INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, nominal_ms)
) WITHOUT ROWID;
CREATE INDEX {i}occurrences_claim ON {p}occurrences (claim_id) WHERE claim_id IS NOT NULL;
