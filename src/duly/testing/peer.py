"""Another process on the same database, for conformance suites: asked by lines of JSON.

Run as `python -m duly.testing.peer module:open_store URL`. It answers each line on its standard
input with one on its standard output, and ends when the input ends.
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
"""Said between reading due rows and writing their advance, while holding."""


def say(answer: object) -> None:
    """One line for whoever asks."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def hold_claims() -> None:
    """From now on a claim stops between its read and its write, until a line comes."""
    original = index_rows.advance_columns  # advance() asks it too
    stops = iter([CLAIMING])  # a claim that leaves its rows to the engine asks again

    def held(*asked: Any) -> Moves:
        for stop in stops:
            say(stop)
            sys.stdin.readline()
        return original(*asked)

    for module in list(sys.modules.values()):
        if getattr(module, "advance_columns", None) is original:
            module.advance_columns = held  # type: ignore[attr-defined]


async def claim(store: Store, **arguments: Any) -> list[dict[str, Any]]:
    """One claim."""
    return [each._asdict() for each in await store.claim_due(**arguments)]


async def drain(store: Store, **arguments: Any) -> list[str]:
    """Claim until nothing is due; gives the names."""
    names: list[str] = []
    while claimed := await store.claim_due(**arguments):
        names += [each.name for each in claimed]
    return names


async def count_up(store: Store, *, name: str, times: int) -> int:
    """Add one to a document's number, so many times, by compare-and-set; gives the losses."""
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
    """Answer until the input ends."""
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
    """Open the store by the name of a function and a URL, and serve."""
    module, _, function = opener.partition(":")
    answer_lines(cast(Store, getattr(importlib.import_module(module), function)(url)))


if __name__ == "__main__":
    main(*sys.argv[1:])
