-- Each entry of the line records its transaction, so that a search can skip what has passed and
-- still find what was entered since (ADR 0031). What stands in line already was entered before.
ALTER TABLE {p}job_line ADD COLUMN entered bigint NOT NULL DEFAULT 0;
ALTER TABLE {p}job_line
    ALTER COLUMN entered SET DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
-- Expressions, so that for this search the planner cannot take an index that orders what has passed.
CREATE INDEX {i}job_line_entered ON {p}job_line ((queue || ''), entered, (place + 0));
