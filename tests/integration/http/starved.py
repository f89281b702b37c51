"""A server whose application takes all file descriptors of the process and gives them back.

Run as a separate process: `python -m tests.integration.http.starved`. Prints its port.
"""

import asyncio
import logging
import os

from starlette.types import Receive, Scope, Send

from duly.settings import Settings
from duly.web.serving import accepting
from duly.web.serving.serving import Address, Listening

accepting.RETRY_S = 0.02


class Starving:
    """An ASGI application that answers with the count of failed accepts since the last log line."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self.listening = Listening(self, Address(port=0), Settings(idle_timeout_s=600), 8)

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/take":
            self._take()
        elif scope["path"] == "/give":
            while self._taken:
                os.close(self._taken.pop())
        body = str(self.listening._server._failures._times).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _take(self) -> None:
        while True:
            try:
                self._taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return


def main() -> None:
    """Serve until terminated."""
    logging.basicConfig(level=logging.INFO, format="%(name)s %(event)s %(message)s", force=True)
    logging.getLogger().handlers[0].addFilter(lambda record: hasattr(record, "event"))
    starving = Starving()
    print(starving.listening.url.rpartition(":")[2], flush=True)
    asyncio.run(starving.listening.run())


if __name__ == "__main__":
    main()
