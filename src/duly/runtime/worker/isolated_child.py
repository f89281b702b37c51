"""The child process that runs suspects: `python -m duly.runtime.worker.isolated_child FD`.

Imports the application that the worker names, then runs one job after another. If the worker dies
first, the running job is released without counting an attempt, since it did not kill the worker.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import runpy
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import msgspec

from duly.model.jobs import LeasedJob, StartMode
from duly.rules.outcomes import Outcome, Released, decide
from duly.runtime.worker.admission import Admission
from duly.runtime.worker.isolation import Location
from duly.runtime.worker.job_context import SlotContext
from duly.runtime.worker.slots import Slot
from duly.runtime.worker.starts import Start

GIVE_BACK_S = 10.0


def load(location: Location) -> Any:
    """Import and return the application."""
    if location.is_script:
        return runpy.run_path(location.module, run_name="__duly_child__")[location.name]
    return getattr(importlib.import_module(location.module), location.name)


class Child:
    """A process that runs jobs received over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()
        self._job: LeasedJob | None = None
        """The running job, until its outcome is sent."""
        greeting = self._receive()
        assert greeting is not None
        sys.path[:] = greeting["path"]
        self._app = load(
            Location(greeting["module"], greeting["name"], is_script=greeting["is_script"])
        )
        self._app.url = greeting["url"]
        self._store = self._app.store
        self._send({"ready": os.getpid()})

    async def serve(self) -> None:
        """Run jobs until the worker closes the connection, which ends the process."""
        loop = asyncio.get_running_loop()
        coming: asyncio.Queue[LeasedJob] = asyncio.Queue()
        threading.Thread(target=self._read, args=(loop, coming), daemon=True).start()
        with ThreadPoolExecutor(1, "duly-handler") as threads:
            calls = self._app.calls
            slot_context = SlotContext(
                self._app.actions,
                self._app.clock,
                threads,
                lambda _job, text: self._send({"progress": text}),
                _already_recorded,
                calls,
                lambda _job, ms: self._send({"interval_ms": ms}),
            )
            slot = Slot(slot_context, Admission(calls, threads))
            loop.add_signal_handler(signal.SIGTERM, slot.interrupt, "stop")
            while True:
                self._job = await coming.get()
                outcome = await slot.run(self._job._replace(careful=StartMode.AHEAD))
                self._end(outcome or Released(), slot.took_ms)

    def _end(self, outcome: Outcome, took_ms: int | None) -> None:
        self._job = None
        message = {"outcome": type(outcome).__name__, "fields": asdict(outcome), "took_ms": took_ms}
        self._send(message)

    def _read(self, loop: asyncio.AbstractEventLoop, coming: asyncio.Queue[LeasedJob]) -> None:
        """Receive jobs; when the worker is gone, release the running job and end the process.

        Runs on a thread, because the handler may block the loop.
        """
        while (message := self._receive()) is not None:
            loop.call_soon_threadsafe(coming.put_nowait, LeasedJob(*message["job"]))
        job = self._job
        if job is not None:
            end = decide(job, Released("its worker died"), is_charged=True)
            asyncio.run(asyncio.wait_for(self._store.finish([end]), GIVE_BACK_S))
        os._exit(0)

    def _receive(self) -> dict[str, Any] | None:
        try:
            line = self._lines.readline()
        except OSError:
            return None
        return msgspec.json.decode(line, type=dict[str, Any]) if line else None

    def _send(self, message: dict[str, Any]) -> None:
        # Handlers on threads send progress too.
        with self._sending:
            self._connection.sendall(msgspec.json.encode(message) + b"\n")


async def _already_recorded(_job: LeasedJob) -> Start:
    return "started"


def main(number: str) -> None:
    """Serve the worker at the other end of a socket."""
    asyncio.run(Child(socket.socket(fileno=int(number))).serve())


if __name__ == "__main__":
    main(sys.argv[1])
