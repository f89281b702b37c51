ALTER TABLE {p}schedule_index ADD COLUMN hand_over text NOT NULL DEFAULT 'jobs';
UPDATE {p}schedule_index SET hand_over = (
    SELECT r.hand_over FROM {p}schedule_rules r WHERE r.row_id = {p}schedule_index.row_id
);

ALTER TABLE {p}occurrences ADD COLUMN until_ms bigint;
ALTER TABLE {p}occurrences ADD COLUMN times integer NOT NULL DEFAULT 1;
ALTER TABLE {p}occurrences ADD COLUMN job_id text COLLATE "C";
ALTER TABLE {p}occurrences ADD COLUMN reason text;
ALTER TABLE {p}occurrences ADD COLUMN fired_at_ms bigint;
ALTER TABLE {p}occurrences ADD COLUMN ended_at_ms bigint;
CREATE INDEX {i}occurrences_job ON {p}occurrences (job_id) WHERE job_id IS NOT NULL;
