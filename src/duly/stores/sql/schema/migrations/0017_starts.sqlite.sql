-- All jobs of a queue stand in one order, and starts are recorded (ADR 0027).
ALTER TABLE {p}jobs ADD COLUMN unstarted INTEGER;
UPDATE {p}jobs SET careful = 3 WHERE careful = 1 AND max_attempts = 1;
DROP INDEX {p}job_line_pairs;
ALTER TABLE {p}job_line RENAME TO {p}job_line_before;
CREATE TABLE {p}job_line (
    queue TEXT NOT NULL,
    place INTEGER NOT NULL,
    id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    action TEXT NOT NULL,
    run_at_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, place, id)
) WITHOUT ROWID;
CREATE INDEX {i}job_line_pairs ON {p}job_line (queue, workspace, place, id);
INSERT INTO {p}job_line (queue, place, id, workspace, action, run_at_ms)
    SELECT queue, place, id, workspace, action, run_at_ms FROM {p}job_line_before;
DROP TABLE {p}job_line_before;
