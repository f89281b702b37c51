"""More sockets than descriptors, against a process that plans, works, keeps and serves at once."""

import http.client
import itertools
import selectors
import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

import psycopg

from duly.errors import BackendUnavailable
from duly.model.stored_jobs import JobFilter
from tests.system.cluster import Cluster, cut_others
from tests.system.faults.site import Load, Site
from tests.system.processes import LIMIT_S, POLL_S, Process

DESCRIPTORS = 256
SOCKETS = 400
SLOW_SHARE = 4
"""One socket in so many sends a byte of a request now and then; the others send nothing."""
HEADERS = b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 10_000
MAX_LOG_BYTES = 20_000
CONNECTS_PER_POLL = 40


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

    def __exit__(self, *_: object) -> None:
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
            site.until_recorded("end", ids, len(ids) * number // (load.rounds + 1) + 1)
            cut_others(connection)
            site.note_fault_end()
            site.until(lambda: _answers(port), "the probe is answered")
        site.until(lambda: _planned(site) == load.rounds, "the schedules are planned")
        site.find_jobs("quick")
        site.until_ended()
        site.until(lambda: _answers(port), "the probe is answered")
    written = process.log.stat().st_size
    assert written < MAX_LOG_BYTES, f"{written} bytes of log:\n{process.log.read_text()[-2000:]}"
    return 0


def _start_all_in_one(site: Site) -> tuple[Process, int]:
    """Start `duly run` with every role under a limit of descriptors; return it and its port."""
    limited = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")
    words = ("--port", "0", "--dev", "--log-level", "warning", "--lease", "5", "--slots", "4")
    process = site.launch("run", *words, under=limited)
    site.until(lambda: process.url is not None and _answers(_port_of(process)), "it serves")
    return process, _port_of(process)


def _port_of(process: Process) -> int:
    port = urlsplit(process.url or "").port
    assert port is not None
    return port


def _answers(port: int) -> bool:
    """Return whether the probe is answered; a stranger may push it out before it is read."""
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
