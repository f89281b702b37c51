-- All jobs of a queue stand in one order, and starts are recorded (ADR 0027).
ALTER TABLE {p}jobs ADD COLUMN unstarted integer;
UPDATE {p}jobs SET careful = 3 WHERE careful = 1 AND max_attempts = 1;
-- The key and the index go with the column.
ALTER TABLE {p}job_line DROP COLUMN careful;
ALTER TABLE {p}job_line ADD PRIMARY KEY (queue, place, id);
CREATE INDEX {i}job_line_pairs ON {p}job_line (queue, workspace, place, id);
