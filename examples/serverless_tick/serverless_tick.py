"""A tick without its own process: a function that a cloud's cron calls once a minute.

Run it: python examples/serverless_tick/serverless_tick.py. It serves the application on a free port
and calls the function as AWS would. It advances its own clock, so the output is always the same.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import uvicorn

from duly import Duly, Flow, Gateway, HttpOptions, TickOptions, cron, user
from duly.dispatch.tick.aws_lambda import LambdaTick
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain

SECRET = "a-secret-that-comes-from-the-environment"  # noqa: S105 - see DULY_DISPATCH_SECRETS

mail = Flow("mail")


@mail.action
async def send_digest(to: str) -> None:
    print(f"  a digest to {to}")


clock = ManualClock(datetime(2026, 5, 4, 8, 58, tzinfo=UTC))
app = Duly("memory:", flows=[mail], clock=clock, http=HttpOptions(gateways=[Gateway(SECRET)]))


@contextmanager
def served() -> Iterator[str]:
    """Serve the application on a free port; in production it runs in its own process."""
    server = uvicorn.Server(uvicorn.Config(app.asgi, log_level="error"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def create() -> None:
    for name in ("ada", "bob"):
        mine = app.schedules(mail).of(user(name))
        await mine.create(
            "digest",
            cron("0 9 * * *"),
            action=send_digest,
            input=f"{name}@example.org",
            hand_over="http",
        )


def main() -> None:
    asyncio.run(create())
    with served() as url:
        # In production, set DULY_BASE_URL and DULY_DISPATCH_SECRETS in the function's environment.
        # One post at a time, so that the output has a fixed order.
        http = replace(app.http, tick=TickOptions(base_url=url, concurrency=1))
        app.config = replace(app.config, http=http)
        handler = LambdaTick(app)
        for event in ({"source": "aws.events"}, {"headers": {"authorization": "Bearer guessed"}}):
            for _ in range(3):
                answer = handler(event, None)
                print(f"{clock.now():%H:%M}", answer["statusCode"], answer["body"])
                asyncio.run(drain(app))
                clock.advance(minutes=1)
        handler.close()


if __name__ == "__main__":
    main()
