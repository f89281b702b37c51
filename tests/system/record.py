"""The record of what ran: a file to which handlers append, and which the audit reads.

Each start and each end of a handler is one line, written at once: a process that is killed has
recorded what it did, and no two processes mix their lines.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple

from duly.flows.context import Context

Moment = Literal["start", "end"]


class Line(NamedTuple):
    """A line of the record; the claim is that under which the handler ran."""

    job_id: str
    claim: int
    moment: str
    pid: int


@dataclass
class Runs:
    """The runs of one job: handlers that started, by claim, and how many ended."""

    starts: Counter[int] = field(default_factory=Counter)
    ends: int = 0


class Record:
    """A record in a file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading = Lock()
        self._lines: list[Line] = []
        self._offset = 0

    def note(self, ctx: Context, moment: Moment) -> None:
        """Append a line about the running handler."""
        os.write(self._file, f"{ctx.job_id} {ctx.attempt} {moment} {os.getpid()}\n".encode())

    def lines(self) -> Sequence[Line]:
        """Return all lines, oldest first; the file is read on from where it was read before."""
        with self._reading:
            if self.path.exists():
                with self.path.open("rb") as file:
                    file.seek(self._offset)
                    # The last line may be there in part only.
                    added = b"".join(file.read().rpartition(b"\n")[:2])
                self._offset += len(added)
                for line in added.decode().splitlines():
                    job_id, claim, moment, pid = line.split()
                    self._lines.append(Line(job_id, int(claim), moment, int(pid)))
            return self._lines

    def runs(self) -> defaultdict[str, Runs]:
        """Return the runs by job."""
        found: defaultdict[str, Runs] = defaultdict(Runs)
        for line in self.lines():
            if line.moment == "start":
                found[line.job_id].starts[line.claim] += 1
            else:
                found[line.job_id].ends += 1
        return found

    @cached_property
    def _file(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
