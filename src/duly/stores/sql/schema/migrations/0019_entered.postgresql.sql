-- Entries record their transactions, so that a search can skip what has passed and still find what
-- was entered since (ADR 0031). What is there already was entered before any search that will ask.
-- The indexes are on expressions, so that for this search the planner cannot take an index that has
-- the order of what has passed.
ALTER TABLE {p}job_line ADD COLUMN entered bigint NOT NULL DEFAULT 0;
ALTER TABLE {p}job_line
    ALTER COLUMN entered SET DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
CREATE INDEX {i}job_line_entered ON {p}job_line ((queue || ''), entered, (place + 0));

ALTER TABLE {p}schedule_index ADD COLUMN entered bigint NOT NULL DEFAULT 0;
ALTER TABLE {p}schedule_index
    ALTER COLUMN entered SET DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
CREATE INDEX {i}schedule_index_entered
    ON {p}schedule_index ((hand_over || ''), (flow || ''), entered, (run_at_ms + 0))
    WHERE run_at_ms IS NOT NULL;

-- Of a job: the transaction that stored it, or that last let it wait for its run time.
ALTER TABLE {p}jobs ADD COLUMN entered bigint NOT NULL DEFAULT 0;
ALTER TABLE {p}jobs
    ALTER COLUMN entered SET DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
CREATE INDEX {i}jobs_entered ON {p}jobs ((queue || ''), entered, (run_at_ms + 0)) WHERE waits = 1;

ALTER TABLE {p}job_marks ADD COLUMN entered bigint NOT NULL DEFAULT 0;
ALTER TABLE {p}job_marks
    ALTER COLUMN entered SET DEFAULT CAST(CAST(pg_current_xact_id() AS text) AS bigint);
CREATE INDEX {i}job_marks_entered ON {p}job_marks ((state || ''), entered, (at_ms + 0));

-- A trigger, so that nobody who moves a row, older releases and operators included, can forget it.
CREATE FUNCTION {p}note_entered() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.entered = CAST(CAST(pg_current_xact_id() AS text) AS bigint); RETURN NEW; END $$;
CREATE TRIGGER {i}index_moved
    BEFORE UPDATE OF hand_over, flow, run_at_ms ON {p}schedule_index
    FOR EACH ROW EXECUTE FUNCTION {p}note_entered();
CREATE TRIGGER {i}line_moved BEFORE UPDATE ON {p}job_line
    FOR EACH ROW EXECUTE FUNCTION {p}note_entered();
