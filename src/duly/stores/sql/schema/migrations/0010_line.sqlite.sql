-- What waits, and when to look at what else, stand beside the jobs: no index of theirs changes when
-- one is claimed or succeeds.
CREATE TABLE {p}job_line (
    queue TEXT NOT NULL,
    careful INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    action TEXT NOT NULL,
    run_at_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, careful, place, id)
) WITHOUT ROWID;
CREATE INDEX {i}job_line_pairs ON {p}job_line (queue, workspace, careful, place, id);
INSERT INTO {p}job_line (queue, careful, place, id, workspace, action, run_at_ms)
    SELECT queue, careful, place, id, workspace, action, run_at_ms FROM {p}jobs
    WHERE state = 'queued';

CREATE TABLE {p}job_marks (
    seq INTEGER NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    ids TEXT NOT NULL
);
CREATE INDEX {i}job_marks_times ON {p}job_marks (state, at_ms, seq);
INSERT INTO {p}job_marks (state, at_ms, jobs, ids)
    SELECT state, COALESCE(finished_at_ms, lease_until_ms), count(*), json_group_array(id)
    FROM {p}jobs WHERE finished_at_ms IS NOT NULL OR lease_until_ms IS NOT NULL GROUP BY 1, 2;

DROP INDEX {p}jobs_line;
DROP INDEX {p}jobs_pairs;
DROP INDEX {p}jobs_leases;
DROP INDEX {p}jobs_ended;
DROP INDEX {p}jobs_due;
ALTER TABLE {p}jobs ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
UPDATE {p}jobs SET waits = 1 WHERE state IN ('scheduled', 'retrying') AND in_line = 0;
CREATE INDEX {i}jobs_due ON {p}jobs (queue, run_at_ms, id) WHERE waits = 1;
