ALTER TABLE {p}jobs ADD COLUMN claimed_at_ms INTEGER;
