"""The server that dispatches are posted to: a process that prints its port and answers 202."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Read the request and accept it."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"21")]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"accepted"}'})


async def main() -> None:
    """Serve until standard input ends."""
    config = uvicorn.Config(answer, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(512)
        serving = asyncio.create_task(server.serve([listening]))
        print(listening.getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
