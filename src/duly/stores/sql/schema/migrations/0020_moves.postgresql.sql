-- A move writes an entry in every index of the row. A unique index looks at all entries with an equal
-- key, and while a snapshot is held none of them can be removed. With the version, which every move
-- counts up, no two are equal. That a number has one row follows from the key of the rules.
ALTER TABLE {p}schedule_index
    DROP CONSTRAINT {i}schedule_index_pkey,
    ADD CONSTRAINT {i}schedule_index_pkey PRIMARY KEY (row_id, version);

-- The indexes of new entries get conditions of their own, which mean the same. An index whose condition
-- a search names may be read as a whole, and the server did so where a vacuum had found it nearly empty
-- while a snapshot was held: for each claim it read what had passed.
DROP INDEX {p}schedule_index_entered;
CREATE INDEX {i}schedule_index_entered
    ON {p}schedule_index ((hand_over || ''), (flow || ''), entered, (run_at_ms + 0))
    WHERE run_at_ms + 0 IS NOT NULL;
DROP INDEX {p}jobs_entered;
CREATE INDEX {i}jobs_entered
    ON {p}jobs ((queue || ''), entered, (run_at_ms + 0)) WHERE waits + 0 = 1;
