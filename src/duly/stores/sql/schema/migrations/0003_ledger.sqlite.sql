ALTER TABLE {p}schedule_index ADD COLUMN hand_over TEXT NOT NULL DEFAULT 'jobs';
UPDATE {p}schedule_index SET hand_over = (
    SELECT r.hand_over FROM {p}schedule_rules r WHERE r.row_id = {p}schedule_index.row_id
);

ALTER TABLE {p}occurrences ADD COLUMN until_ms INTEGER;
ALTER TABLE {p}occurrences ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
ALTER TABLE {p}occurrences ADD COLUMN job_id TEXT;
ALTER TABLE {p}occurrences ADD COLUMN reason TEXT;
ALTER TABLE {p}occurrences ADD COLUMN fired_at_ms INTEGER;
ALTER TABLE {p}occurrences ADD COLUMN ended_at_ms INTEGER;
CREATE INDEX {i}occurrences_job ON {p}occurrences (job_id) WHERE job_id IS NOT NULL;
