"""More sockets than descriptors, against a process that plans, works, keeps and serves at once."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import selectors
import socket
import subprocess
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import psycopg

from duly.errors import BackendUnavailable
from duly.model.stored_jobs import JobFilter
from tests.system.faults.servers import Cluster
from tests.system.faults.site import DULY, LIMIT_S, ROOT, Site, WorkerProcess

if TYPE_CHECKING:
    from tests.system.faults.scenarios import Load

DESCRIPTORS = 256
SOCKETS = 400
SLOW_SHARE = 4
"""One socket in so many sends a byte of a request now and then; the others send nothing."""
HEADERS = b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 10_000
MAX_LOG_BYTES = 20_000
POLL_S = 0.05
CONNECTS_PER_POLL = 40
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class Flood:
    """Sockets that are opened and hardly used; one that is closed is opened again."""

    def __init__(self, port: int, sockets: int = SOCKETS) -> None:
        self._address = ("127.0.0.1", port)
        self._sockets = sockets
        self._selector = selectors.DefaultSelector()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.is_up = threading.Event()
        """As many as were asked for have been opened."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.is_up.wait(LIMIT_S)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def _run(self) -> None:
        opened = 0
        while not self._stopping.is_set():
            missing = self._sockets - len(self._selector.get_map())
            for _ in range(min(missing, CONNECTS_PER_POLL)):
                opened += 1
                self._open(opened)
            if opened >= self._sockets:
                self.is_up.set()
            for key, _ in self._selector.select(POLL_S):
                self._read(key)
            for key in list(self._selector.get_map().values()):
                _drip(key)
            self._stopping.wait(POLL_S)

    def _open(self, number: int) -> None:
        client = socket.socket()
        client.settimeout(0)
        client.connect_ex(self._address)
        slow = HEADERS if number % SLOW_SHARE == 0 else b""
        self._selector.register(client, selectors.EVENT_READ, iter(slow))

    def _read(self, key: selectors.SelectorKey) -> None:
        assert isinstance(key.fileobj, socket.socket)
        try:
            if key.fileobj.recv(4_096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._close(key.fileobj)

    def _close(self, client: object) -> None:
        assert isinstance(client, socket.socket)
        self._selector.unregister(client)
        client.close()


def _drip(key: selectors.SelectorKey) -> None:
    """Send the next byte of a request that has no end."""
    assert isinstance(key.fileobj, socket.socket)
    for byte in itertools.islice(key.data, 1):
        with suppress(OSError):
            key.fileobj.send(bytes([byte]))


def exhaust_sockets(site: Site, load: Load, _: Cluster) -> int:
    """All descriptors are asked for by strangers while jobs and schedules go on.

    The connections to the database are cut meanwhile, so that new descriptors are needed.
    """
    process, port = _start_all_in_one(site)
    with Flood(port), psycopg.connect(site.url, autocommit=True) as connection:
        for number in range(load.rounds):
            site.schedule("quick", f"flooded-{number}")
        ids = site.enqueue("opening", [0.02] * load.jobs)
        for number in range(load.rounds):
            site.until_noted("end", ids, len(ids) * number // (load.rounds + 1) + 1)
            connection.execute(CUT)
            site.note_fault_end()
            site.until(lambda: _answers(port), "the probe is answered")
        site.until(lambda: _planned(site) == load.rounds, "the schedules are planned")
        site.find_jobs("work.quick")
        site.until_ended()
        site.until(lambda: _answers(port), "the probe is answered")
    written = process.log.stat().st_size
    assert written < MAX_LOG_BYTES, f"{written} bytes of log:\n{process.log.read_text()[-2000:]}"
    return 0


def _start_all_in_one(site: Site) -> tuple[WorkerProcess, int]:
    """Start `duly run` with every role under a limit of descriptors; gives it and its port."""
    log = site.folder / f"worker-{len(site.workers)}.log"
    limited = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")
    words = ("--port", "0", "--dev", "--log-level", "warning", "--lease", "5", "--slots", "4")
    with log.open("w") as errors:
        popen = subprocess.Popen(
            [*limited, *DULY, "tests.system.faults.application:app", *words],
            cwd=ROOT,
            env=os.environ | {"DULY_FAULT_URL": site.url, "DULY_FAULT_JOURNAL": str(site.journal)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    worker = WorkerProcess(popen, log, is_kept=False)
    site.workers.append(worker)
    site.until(lambda: _port_of(worker) is not None and _answers(_port_of(worker)), "it serves")
    port = _port_of(worker)
    assert port is not None
    return worker, port


def _port_of(worker: WorkerProcess) -> int | None:
    found = re.search(r"dashboard and API at http://127\.0\.0\.1:(\d+)", worker.log.read_text())
    return None if found is None else int(found[1])


def _answers(port: int | None) -> bool:
    """Return whether the probe is answered; a stranger may push it out before it is read."""
    assert port is not None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _planned(site: Site) -> int:
    try:
        return len(site.run(site.store.list_jobs(JobFilter(action="work.quick"))))
    except BackendUnavailable:
        return 0
