ALTER TABLE {p}resources ADD COLUMN hand_over TEXT;
-- Top-level keys of a definition stand in order, and no quote stands unescaped in a text: what comes
-- before the input is the definition's own.
UPDATE {p}resources SET hand_over = 'http' WHERE collection = 'schedules'
    AND INSTR(body, '"hand_over":"http"') > 0
    AND (INSTR(body, '"input":') = 0
        OR INSTR(body, '"hand_over":"http"') < INSTR(body, '"input":'));
UPDATE {p}resources SET hand_over = 'external',
    state = CASE WHEN INSTR(body, '"enabled":false') > 0
        AND INSTR(body, '"enabled":false') < INSTR(body, '"hand_over":"external"')
        THEN 'paused' ELSE 'active' END
    WHERE collection = 'schedules' AND state = 'external';
CREATE INDEX {i}resources_hand_over ON {p}resources (hand_over, name, scope)
    WHERE hand_over IS NOT NULL;
