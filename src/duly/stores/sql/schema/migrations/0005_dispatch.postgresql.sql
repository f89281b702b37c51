-- Of rows that a tick posts; the lease of one that nobody holds is when it may be posted.
ALTER TABLE {p}occurrences ADD COLUMN lease_until_ms bigint;
ALTER TABLE {p}occurrences ADD COLUMN tries integer;
ALTER TABLE {p}occurrences ADD COLUMN delivery text;
CREATE INDEX {i}occurrences_dispatching ON {p}occurrences (lease_until_ms)
    WHERE state = 'dispatching';

ALTER TABLE {p}schedule_rules ADD COLUMN not_found integer NOT NULL DEFAULT 0;
