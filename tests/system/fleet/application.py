"""The processes of a fleet: an application server, and a tick. Each says on its output what it did.

`python -m tests.system.fleet.application serve <database> <port>` says `ready <port>`;
`python -m tests.system.fleet.application tick <database> <url>` says `posted <status>` and `idle`.
Both end when their input does.
"""

import asyncio
import socket
import sys

import uvicorn

from duly.app import Duly
from duly.dispatch import Gateway, HttpOptions, TickOptions
from duly.flows.flow import Flow
from duly.model.dispatches import Dispatching

SECRET = "a-secret-of-the-fleet"  # noqa: S105 - of throwaway processes
FLOW = Flow("fleet")


@FLOW.action
async def count(number: int) -> None:
    """Nothing: it is counted that its job was made."""
    del number


@FLOW.action(delivery="at_most_once")
async def count_once(number: int) -> None:
    """The same, never repeated."""
    del number


def say(*words: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def app_on(database: str, **tick: object) -> Duly:
    """The application on a database."""

    def tell(row: Dispatching, status: int) -> None:
        del row
        say("posted", status)

    options = TickOptions(
        max_per_tick=500,
        concurrency=25,
        first_delay_s=0.5,
        longest_delay_s=2,
        timeout_s=5,
        lease_s=10,
        on_dispatch=tell,
    )
    http = HttpOptions(gateways=[Gateway(SECRET)], tick=options)
    return Duly(database, flows=[FLOW], http=http)


async def serve(database: str, port: int) -> None:
    """Serve on a port until the input ends."""
    app = app_on(database)
    await app.ready()
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(128)
        server = uvicorn.Server(uvicorn.Config(app.asgi, log_level="warning", ws="none"))
        serving = asyncio.create_task(server.serve([listening]))
        say("ready", listening.getsockname()[1])
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
    await app.close()


async def tick(database: str, url: str) -> None:
    """Post until the input ends."""
    app = app_on(database)
    ticking = app.tick(await app.ready(), url)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        report = await ticking.run_once()
        if not report.posted:
            say("idle")
            await asyncio.wait([ended], timeout=0.1)
    await ticking.close()
    await app.close()


if __name__ == "__main__":
    role, database, where = sys.argv[1:]
    asyncio.run(serve(database, int(where)) if role == "serve" else tick(database, where))
