-- Of rows that a tick posts; the lease of one that nobody holds is when it may be posted.
ALTER TABLE {p}occurrences ADD COLUMN lease_until_ms INTEGER;
ALTER TABLE {p}occurrences ADD COLUMN tries INTEGER;
ALTER TABLE {p}occurrences ADD COLUMN delivery TEXT;
CREATE INDEX {i}occurrences_dispatching ON {p}occurrences (lease_until_ms)
    WHERE state = 'dispatching';

ALTER TABLE {p}schedule_rules ADD COLUMN not_found INTEGER NOT NULL DEFAULT 0;
