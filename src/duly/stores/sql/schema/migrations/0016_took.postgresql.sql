ALTER TABLE {p}jobs ADD COLUMN took_ms bigint;
ALTER TABLE {p}job_events ADD COLUMN took_ms bigint;
