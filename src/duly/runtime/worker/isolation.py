"""Child processes for jobs that were running when their worker died (ADR 0027).

A child is a new interpreter that imports the application and runs one job at a time. When it dies,
the worker survives and counts an attempt of exactly the job that ran in it. Parent and child
exchange lines of JSON over a socket; the child's side is in `isolated_child`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from duly.model.jobs import LeasedJob
from duly.rules.outcomes import Cancelled, Denied, Failed, Outcome, Released, Succeeded
from duly.runtime.worker.job_context import Isolated, NoChild

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 4 * 1024 * 1024
START_S = 60.0
"""Seconds a child may take to import the application."""
IDLE_S = 30.0
"""Seconds for which a child without a job is kept."""
GRACE_S = 5.0
"""Seconds the handler in a child may take to stop when it is asked to."""
OUTCOMES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Succeeded, Failed, Cancelled, Released, Denied)
}


@dataclass(frozen=True, slots=True)
class Location:
    """The module and variable that an application can be imported from."""

    module: str
    """A dotted name, or the path of a script."""
    name: str
    is_script: bool = False


def find_location(app: object) -> Location | None:
    """Return the module-level variable that holds an application; None: no module has one."""
    for module_name, module in list(sys.modules.items()):
        names = [name for name, value in list(vars(module).items()) if value is app]
        if not names:
            continue
        if module_name != "__main__":
            return Location(module_name, names[0])
        spec, path = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if spec is not None:
            return Location(spec.name, names[0])
        if path is not None:
            return Location(path, names[0], is_script=True)
    return None


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks for messages that a child sends about its running job."""

    note_progress: Callable[[LeasedJob, str], None]
    ask_interval: Callable[[LeasedJob, int], None] | None


class Children:
    """The child processes of one worker, started on demand."""

    def __init__(self, location: Location, url: str, limit: int) -> None:
        self._greeting = {"url": url, "path": sys.path} | asdict(location)
        self._places = asyncio.Semaphore(limit)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self.hooks: Hooks | None = None

    @asynccontextmanager
    async def child(self) -> AsyncIterator[_Child]:
        """Wait for a free child; raise NoChild if none can be started."""
        async with self._places:
            child = await self._take()
            try:
                yield child
            finally:
                if child.is_usable:
                    self._idle.append(child)
                    child.expire_in(IDLE_S, lambda: self._drop(child))

    async def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            child.keep()
            if child.is_usable:
                return child
        for ended in [each for each in self._all if each.has_ended]:
            self._all.discard(ended)
        child = await _Child.start(self._greeting, self.hooks)
        self._all.add(child)
        return child

    def _drop(self, child: _Child) -> None:
        """Close an idle child; it stays in the set of all children until its process has ended."""
        self._idle.remove(child)
        child.close()

    async def close(self) -> None:
        """End all children; those that run a job release it."""
        ending = [asyncio.create_task(child.end()) for child in self._all]
        self._idle.clear()
        self._all.clear()
        if ending:
            await asyncio.wait(ending)


class _Child:
    """One child process."""

    def __init__(
        self,
        popen: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hooks: Hooks | None,
    ) -> None:
        self._popen = popen
        self._reader = reader
        self._writer = writer
        self._hooks = hooks
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, greeting: dict[str, Any], hooks: Hooks | None) -> _Child:
        """Start an interpreter that imports the application; raise NoChild if that fails."""
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            words = (sys.executable, "-m", "duly.runtime.worker.isolated_child", str(number))
            popen = await asyncio.create_subprocess_exec(
                *words, pass_fds=[number], stdin=asyncio.subprocess.DEVNULL
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        child = cls(popen, reader, writer, hooks)
        log.info(
            "started child %d for suspects", popen.pid, extra={"event": "worker.child_started"}
        )
        try:
            async with asyncio.timeout(START_S):
                child._send(greeting)
                greeted = await child._receive()
        except BaseException as error:
            child._kill()
            child.close()
            if isinstance(error, TimeoutError):
                raise NoChild(f"the child process was not ready within {START_S:g} s") from None
            raise
        if greeted is None:
            child.close()
            raise NoChild(f"the child process ended: {_how(await popen.wait())}")
        return child

    @property
    def is_usable(self) -> bool:
        """Return whether it can take another job."""
        return self._ending is None and self._popen.returncode is None

    @property
    def has_ended(self) -> bool:
        """Return whether the process is gone."""
        return self._popen.returncode is not None

    async def run(self, job: LeasedJob) -> Isolated:
        """Run one job; cancellation asks the handler to stop and then ends the process."""
        try:
            self._send({"job": list(job)})
            while (message := await self._receive()) is not None:
                if "outcome" in message:
                    outcome: Outcome = OUTCOMES[message["outcome"]](**message["fields"])
                    return Isolated(outcome, message["took_ms"])
                if self._hooks is not None:
                    self._forward(self._hooks, job, message)
            self.close()
            return Isolated(Failed(f"its process died: {_how(await self._popen.wait())}"), None)
        except asyncio.CancelledError:
            self._ending = asyncio.create_task(self._stop())
            raise

    def _forward(self, hooks: Hooks, job: LeasedJob, message: dict[str, Any]) -> None:
        if "progress" in message:
            hooks.note_progress(job, message["progress"])
        elif "interval_ms" in message and hooks.ask_interval is not None:
            hooks.ask_interval(job, message["interval_ms"])

    async def _stop(self) -> None:
        """Ask the handler to stop, and end the process."""
        with suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGTERM)
        await self.end()

    async def end(self) -> None:
        """Give the process GRACE_S seconds to end, then kill it."""
        self.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        try:
            async with asyncio.timeout(GRACE_S):
                await self._popen.wait()
        except TimeoutError:
            self._kill()
            await self._popen.wait()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._popen.kill()

    def expire_in(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` after `seconds` unless the child is used before."""
        self._expiry = asyncio.get_running_loop().call_later(seconds, call)

    def keep(self) -> None:
        """Cancel the expiry."""
        if self._expiry is not None:
            self._expiry.cancel()

    def close(self) -> None:
        """Close the connection: an idle child ends, a busy one releases its job first."""
        self.keep()
        self._writer.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _receive(self) -> dict[str, Any] | None:
        """Return the next line; None: the process has ended."""
        try:
            line = await self._reader.readuntil()
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return msgspec.json.decode(line, type=dict[str, Any])


def _how(status: int) -> str:
    """Return a text about how a process ended."""
    if status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def is_possible(url: str) -> bool:
    """Return whether another process can reach the same database."""
    return url != "memory:" and hasattr(os, "fork")
