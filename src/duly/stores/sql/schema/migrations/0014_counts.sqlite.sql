-- How many times the ledger has of each flow in each outcome. Triggers keep it, so that whatever
-- changes the ledger changes it in the same transaction.
CREATE TABLE {p}ledger_counts (
    seq INTEGER NOT NULL PRIMARY KEY,
    flow TEXT NOT NULL,
    outcome TEXT NOT NULL,
    times INTEGER NOT NULL
);
CREATE UNIQUE INDEX {i}ledger_counts_outcome ON {p}ledger_counts (flow, outcome);
CREATE TRIGGER {i}ledger_added AFTER INSERT ON {p}occurrences BEGIN
    INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (NEW.flow,
        CASE WHEN NEW.state = 'missed' AND NEW.reason = 'paused' THEN 'paused' ELSE NEW.state END, NEW.times)
        ON CONFLICT (flow, outcome) DO UPDATE SET times = times + excluded.times; END;
CREATE TRIGGER {i}ledger_changed AFTER UPDATE ON {p}occurrences
    WHEN OLD.state <> NEW.state OR OLD.times <> NEW.times OR OLD.flow <> NEW.flow
    OR OLD.reason IS NOT NEW.reason BEGIN
    INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (OLD.flow,
        CASE WHEN OLD.state = 'missed' AND OLD.reason = 'paused' THEN 'paused' ELSE OLD.state END, -OLD.times)
        ON CONFLICT (flow, outcome) DO UPDATE SET times = times + excluded.times; INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (NEW.flow,
        CASE WHEN NEW.state = 'missed' AND NEW.reason = 'paused' THEN 'paused' ELSE NEW.state END, NEW.times)
        ON CONFLICT (flow, outcome) DO UPDATE SET times = times + excluded.times; END;
CREATE TRIGGER {i}ledger_removed AFTER DELETE ON {p}occurrences BEGIN
    INSERT INTO {p}ledger_counts (flow, outcome, times) VALUES (OLD.flow,
        CASE WHEN OLD.state = 'missed' AND OLD.reason = 'paused' THEN 'paused' ELSE OLD.state END, -OLD.times)
        ON CONFLICT (flow, outcome) DO UPDATE SET times = times + excluded.times; END;
INSERT INTO {p}ledger_counts (flow, outcome, times)
    SELECT flow, CASE WHEN state = 'missed' AND reason = 'paused' THEN 'paused' ELSE state END, SUM(times)
    FROM {p}occurrences GROUP BY 1, 2;
CREATE INDEX {i}occurrences_lost ON {p}occurrences (until_ms)
    WHERE state IN ('missed', 'skipped');
