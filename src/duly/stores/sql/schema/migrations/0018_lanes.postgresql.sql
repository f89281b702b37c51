-- The due index begins with what planners and ticks ask for (ADR 0030).
ALTER TABLE {p}schedule_index ALTER COLUMN hand_over TYPE text COLLATE "C";
DROP INDEX {p}schedule_index_due;
CREATE INDEX {i}schedule_index_due
    ON {p}schedule_index (hand_over, flow, run_at_ms, priority DESC, row_id)
    WHERE run_at_ms IS NOT NULL;
