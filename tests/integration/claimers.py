"""A process that waits for a line on stdin, claims until nothing is due and prints it as JSON.

`python -m tests.integration.claimers URL NOW_MS LIMIT`
"""

import asyncio
import json
import sys

from duly.stores import open_store


async def drain(url: str, now_ms: int, limit: int) -> list[tuple[str, int]]:
    store = open_store(url, connections=1, skip_schema_init=True)
    print("ready", flush=True)
    sys.stdin.readline()
    taken: list[tuple[str, int]] = []
    while claimed := await store.claim_due(now_ms, limit=limit):
        taken += [(each.schedule_id, each.nominal_ms) for each in claimed]
    await store.close()
    return taken


def main() -> None:
    url, now_ms, limit = sys.argv[1:]
    print(json.dumps(asyncio.run(drain(url, int(now_ms), int(limit)))), flush=True)


if __name__ == "__main__":
    main()
