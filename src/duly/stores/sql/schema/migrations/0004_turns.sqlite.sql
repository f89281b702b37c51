ALTER TABLE {p}jobs ADD COLUMN policies TEXT;
ALTER TABLE {p}jobs ADD COLUMN turn TEXT;
ALTER TABLE {p}jobs ADD COLUMN in_line INTEGER NOT NULL DEFAULT 0;
-- Who stands in line costs a promotion nothing.
DROP INDEX {p}jobs_due;
CREATE INDEX {i}jobs_due ON {p}jobs (queue, run_at_ms, id)
    WHERE state IN ('scheduled', 'retrying') AND in_line = 0;
CREATE INDEX {i}jobs_in_line ON {p}jobs (schedule_id, run_at_ms, nominal_ms, id) WHERE in_line = 1;

CREATE TABLE {p}running (
    schedule_id TEXT NOT NULL PRIMARY KEY,
    job_id TEXT NOT NULL,
    since_ms INTEGER NOT NULL
);
