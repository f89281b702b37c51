ALTER TABLE {p}jobs ADD COLUMN claimed_at_ms bigint;
ALTER INDEX {p}jobs_pkey SET (fillfactor = 50);
