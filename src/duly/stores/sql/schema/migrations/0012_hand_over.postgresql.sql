ALTER TABLE {p}resources ADD COLUMN hand_over text COLLATE "C";
-- Top-level keys of a definition stand in order, and no quote stands unescaped in a text: what comes
-- before the input is the definition's own.
UPDATE {p}resources SET hand_over = 'http' WHERE collection = 'schedules'
    AND STRPOS(body, '"hand_over":"http"') > 0
    AND (STRPOS(body, '"input":') = 0
        OR STRPOS(body, '"hand_over":"http"') < STRPOS(body, '"input":'));
UPDATE {p}resources SET hand_over = 'external',
    state = CASE WHEN STRPOS(body, '"enabled":false') > 0
        AND STRPOS(body, '"enabled":false') < STRPOS(body, '"hand_over":"external"')
        THEN 'paused' ELSE 'active' END
    WHERE collection = 'schedules' AND state = 'external';
CREATE INDEX {i}resources_hand_over ON {p}resources (hand_over, name, scope)
    WHERE hand_over IS NOT NULL;
