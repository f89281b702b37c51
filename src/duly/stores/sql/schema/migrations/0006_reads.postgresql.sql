CREATE INDEX {i}resources_search ON {p}resources (name, scope) WHERE state IS NOT NULL;
CREATE INDEX {i}resources_states ON {p}resources (state, name, scope) WHERE state IS NOT NULL;

CREATE INDEX {i}occurrences_ranges ON {p}occurrences (schedule_id, nominal_ms)
    WHERE until_ms > nominal_ms;
