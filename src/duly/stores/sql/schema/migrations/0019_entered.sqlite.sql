-- For PostgreSQL, where searches skip what has passed (ADR 0031); not used here.
ALTER TABLE {p}job_line ADD COLUMN entered integer NOT NULL DEFAULT 0;
ALTER TABLE {p}schedule_index ADD COLUMN entered integer NOT NULL DEFAULT 0;
ALTER TABLE {p}jobs ADD COLUMN entered integer NOT NULL DEFAULT 0;
ALTER TABLE {p}job_marks ADD COLUMN entered integer NOT NULL DEFAULT 0;
