ALTER TABLE {p}resources ADD COLUMN finished_at_ms bigint;
ALTER TABLE {p}resources ADD COLUMN temporary integer;
UPDATE {p}resources SET finished_at_ms = COALESCE(
    (SELECT MAX(e.at_ms) FROM {p}schedule_events e
        WHERE e.schedule_id = {p}resources.id AND e.kind = 'finished'),
    updated_at_ms)
    WHERE collection = 'schedules' AND state = 'finished';
CREATE INDEX {i}resources_counted ON {p}resources (scope, name)
    WHERE state IN ('active', 'paused', 'quarantined');
CREATE INDEX {i}resources_finished ON {p}resources (finished_at_ms, id)
    WHERE finished_at_ms IS NOT NULL;
CREATE INDEX {i}resources_temporary ON {p}resources (finished_at_ms, id)
    WHERE temporary IS NOT NULL;
