"""A second process on the same database, for conformance suites; driven by lines of JSON.

Run as `python -m duly.testing.peer module:open_store URL`. It answers each line on its standard
input with one on its standard output, and exits when the input ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from duly.model import index_rows
from duly.model.documents import DocumentWrite, Written
from duly.model.index_rows import Moves
from duly.stores.port import Store

CLAIMING = "claiming"
"""Line sent between reading due rows and writing their advance, after the `hold` verb."""


def say(answer: object) -> None:
    """Write one JSON line to standard output."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def hold_claims() -> None:
    """Make the next claim stop between its read and its write until an input line arrives."""
    original = index_rows.advance_columns  # advance() calls it too
    stops = iter([CLAIMING])  # stop only once: a claim that falls back to the engine calls again

    def held(*asked: Any) -> Moves:
        for stop in stops:
            say(stop)
            sys.stdin.readline()
        return original(*asked)

    for module in list(sys.modules.values()):
        if getattr(module, "advance_columns", None) is original:
            module.advance_columns = held  # type: ignore[attr-defined]


async def claim(store: Store, **arguments: Any) -> list[dict[str, Any]]:
    """Return the rows of one claim."""
    return [each._asdict() for each in await store.claim_due(**arguments)]


async def drain(store: Store, **arguments: Any) -> list[str]:
    """Claim until nothing is due; return the names."""
    names: list[str] = []
    while claimed := await store.claim_due(**arguments):
        names += [each.name for each in claimed]
    return names


async def count_up(store: Store, *, name: str, times: int) -> int:
    """Increment a document's number `times` times by compare-and-set; return the lost races."""
    done = lost = 0
    while done < times:
        found = await store.get_document("counters", "system", name)
        number, version = (0, 0) if found is None else (json.loads(found.body), found.version)
        write = DocumentWrite(
            "counters", "system", name, f"counter-{name}", json.dumps(number + 1), (), version
        )
        if isinstance(await store.put_document(write), Written):
            done += 1
        else:
            lost += 1
    return lost


VERBS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "claim": claim,
    "drain": drain,
    "count_up": count_up,
}


def answer_lines(store: Store) -> None:
    """Answer commands from standard input until it ends."""
    with asyncio.Runner() as runner:
        say("ready")
        for line in sys.stdin:
            command = json.loads(line)
            if command["verb"] == "hold":
                hold_claims()
                say("holding")
                continue
            say(runner.run(VERBS[command["verb"]](store, **command["arguments"])))
        runner.run(store.close())


def main(opener: str, url: str) -> None:
    """Open the store with `opener` (`module:function`) and a URL, and answer commands."""
    module, _, function = opener.partition(":")
    answer_lines(cast(Store, getattr(importlib.import_module(module), function)(url)))


if __name__ == "__main__":
    main(*sys.argv[1:])
