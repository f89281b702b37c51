// pg-boss's no-op jobs: `enqueue URL JOBS`, or `work URL JOBS OPTIONS` (batchSize, loops).
// Its polling worker pauses between batches, so loops of fetch and complete are its fastest mode.
// Finished jobs stay in its table.

const PgBoss = require("pg-boss");
const { callsOf, endWithParent } = require("./jobs_peer_calls.js");

const CHUNK = 10_000;
const QUEUE = "noop";

async function enqueue(connectionString, jobs) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue(QUEUE);
  for (let first = 0; first < jobs; first += CHUNK) {
    await boss.insert(Array(Math.min(CHUNK, jobs - first)).fill({ name: QUEUE }));
  }
  await boss.stop();
}

async function work(connectionString, jobs, { batchSize, loops }) {
  const note = callsOf(jobs);
  const boss = new PgBoss({ connectionString, max: loops + 1, supervise: false, schedule: false });
  await boss.start();
  await Promise.all(Array.from({ length: loops }, () => loop(boss, note, batchSize)));
}

async function loop(boss, note, batchSize) {
  for (;;) {
    const batch = await boss.fetch(QUEUE, { batchSize });
    if (batch.length === 0) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      continue;
    }
    batch.forEach(note);
    await boss.complete(QUEUE, batch.map((job) => job.id));
  }
}

const [verb, url, jobs, options] = process.argv.slice(2);
if (verb === "enqueue") {
  enqueue(url, Number(jobs));
} else {
  endWithParent();
  work(url, Number(jobs), JSON.parse(options));
}
