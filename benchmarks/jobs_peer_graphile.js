// graphile-worker's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS` (a preset's worker).
// Finished jobs are deleted: it keeps no history.

const { Logger, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");
const { callsOf, endWithParent } = require("./jobs_peer_calls.js");

const CHUNK = 10_000;
const ADD = `
  SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, '{"identifier": "noop"}')
    FROM generate_series(1, $1::int)
  ))`;

async function enqueue(connectionString, jobs) {
  await runMigrations({ connectionString, logger: silent() });
  const pool = new Pool({ connectionString });
  for (let first = 0; first < jobs; first += CHUNK) {
    await pool.query(ADD, [Math.min(CHUNK, jobs - first)]);
  }
  await pool.end();
}

async function work(connectionString, jobs, worker) {
  const note = callsOf(jobs);
  const preset = { worker: { connectionString, logger: silent(), ...worker } };
  const noop = async () => note();
  await run({ preset, taskList: { noop }, noHandleSignals: true });
}

// By default it logs a line for every finished job.
function silent() {
  return new Logger(() => () => {});
}

const [verb, url, jobs, options] = process.argv.slice(2);
if (verb === "enqueue") {
  enqueue(url, Number(jobs));
} else {
  endWithParent();
  work(url, Number(jobs), JSON.parse(options));
}
