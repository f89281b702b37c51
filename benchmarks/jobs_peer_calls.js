// Shared by the workers of all Node peers; prints the same lines as jobs_peer_calls.py.

function say(facts) {
  process.stdout.write(JSON.stringify(facts) + "\n");
}

/** Return a function to call for each no-op job. */
function callsOf(jobs) {
  const step = Math.max(1, Math.floor(jobs / 100));
  let number = 0;
  return () => {
    number += 1;
    if (number === 1) say({ first_at: Date.now() / 1000 });
    if (number % step === 0) say({ calls: number });
  };
}

function endWithParent() {
  process.stdin.on("end", () => process.exit(0)).resume();
}

module.exports = { callsOf, endWithParent };
