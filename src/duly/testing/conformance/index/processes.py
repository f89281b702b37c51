"""The conformance suite for several real processes on one database, some of them killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from duly.stores.port import Store
from duly.testing.conformance.samples import (
    MINUTE_MS,
    MINUTELY,
    ONCE,
    START_MS,
    a_definition,
    a_row,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance
from duly.testing.peer import CLAIMING

WAIT_LIMIT_S = 30.0
"""Seconds within which a server must notice that a client was killed."""


class Peer:
    """Another process with the same store open."""

    def __init__(self, program: str, opener: str, url: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", program, opener, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, verb: str, **arguments: Any) -> None:
        """Send a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, "arguments": arguments}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Return the next answer; fail if the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the peer process exited with code {self._process.wait()}"
        return json.loads(line)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Send a command and return its answer."""
        self.tell(verb, **arguments)
        return self.hear()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has exited."""
        self._process.kill()
        self._process.communicate()


Peers = Callable[[int], list[Peer]]


class PeerConformance(StoreConformance):
    """Base class of suites that need other processes."""

    program = "duly.testing.peer"

    @pytest.fixture
    def url(self, store: Store) -> str:
        """Return the URL by which other processes open the test's database; override it."""
        if store.capabilities.many_processes:
            raise NotImplementedError("the suite's subclass must define a `url` fixture")
        pytest.skip("capability many_processes is missing: the store lives in one process")

    @pytest.fixture
    def opener(self) -> str:
        """Return `module:function` of the function that opens a store by URL."""
        return "duly.stores:open_store"

    @pytest.fixture
    def peers(self, store: Store, url: str, opener: str) -> Iterator[Peers]:
        """Yield a function that starts peers and waits for them; kill them after the test."""
        assert store.capabilities.many_processes
        with ExitStack() as ended:

            def start(count: int) -> list[Peer]:
                started = [Peer(self.program, opener, url) for _ in range(count)]
                for peer in started:
                    ended.callback(peer.kill)
                for peer in started:
                    assert peer.hear() == "ready"
                return started

            yield start


class ProcessConformance(PeerConformance):
    """The suite for claims in several processes."""

    def upsert(self, store: Store, *names: str) -> None:
        """Upsert due rows."""

        async def upsert_all() -> None:
            for name in names:
                await store.upsert(a_row(name, ONCE))

        self.runner.run(upsert_all())

    def claim_until(self, store: Store, count: int) -> list[str]:
        """Claim until `count` rows have come: a server needs time to notice a dead client."""
        names: list[str] = []
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(names) < count and time.monotonic() < deadline:
            names += [each.name for each in self.runner.run(store.claim_due(START_MS))]
        return names

    def test_processes_claim_disjointly(self, store: Store, peers: Peers) -> None:
        names = [f"{number:03}" for number in range(200)]
        self.upsert(store, *names)
        claimers = peers(3)
        for peer in claimers:
            peer.tell("drain", now_ms=START_MS, limit=7)
        shares = [peer.hear() for peer in claimers]
        assert sorted(name for share in shares for name in share) == names
        assert self.runner.run(store.list_rows()) == []

    def test_processes_share_every_minute(self, store: Store, peers: Peers) -> None:
        names = [f"{number:04}" for number in range(1_000)]
        minutely = a_definition(MINUTELY, hand_over="http")  # not planned by a planner
        self.runner.run(put(store, *(a_write(name, minutely) for name in names)))
        claimers = peers(2)
        for minute in range(1, 6):
            for peer in claimers:
                peer.tell("drain", now_ms=START_MS + minute * MINUTE_MS, limit=50)
            shares = [peer.hear() for peer in claimers]
            assert sorted(name for share in shares for name in share) == names
        rows = self.runner.run(store.list_rows(limit=1_000))
        assert {row.nominal_ms for row in rows} == {START_MS + 6 * MINUTE_MS}
        assert len(rows) == len(names)

    def test_killed_between_read_and_commit_leaves_rows_due(
        self, store: Store, peers: Peers
    ) -> None:
        names = [f"{number}" for number in range(5)]
        self.upsert(store, *names)
        (victim,) = peers(1)
        assert victim.ask("hold") == "holding"
        said = victim.ask("claim", now_ms=START_MS, limit=3)
        assert said == CLAIMING, "the store does not call duly.model.index_rows.advance()"
        victim.kill()
        assert sorted(self.claim_until(store, len(names))) == names
        assert self.runner.run(store.claim_due(START_MS)) == []

    def test_killed_with_a_claim_id_records_nothing(self, store: Store, peers: Peers) -> None:
        self.upsert(store, "a", "b")
        (victim,) = peers(1)
        victim.ask("hold")
        assert victim.ask("claim", now_ms=START_MS, claim_id="lost") == CLAIMING
        victim.kill()
        deadline = time.monotonic() + WAIT_LIMIT_S
        names: list[str] = []
        while not names and time.monotonic() < deadline:
            claimed = self.runner.run(store.claim_due(START_MS, claim_id="lost"))
            names = [each.name for each in claimed]
        assert names == ["a", "b"]

    def test_lost_answer_is_asked_again_by_another_process(
        self, store: Store, peers: Peers
    ) -> None:
        self.upsert(store, "a", "b", "c")
        first, second = peers(2)
        answer = first.ask("claim", now_ms=START_MS, limit=2, claim_id="one")
        first.kill()
        assert len(answer) == 2
        assert second.ask("claim", now_ms=START_MS, limit=2, claim_id="one") == answer
        assert [each["name"] for each in second.ask("claim", now_ms=START_MS)] == ["c"]

    def test_processes_lose_no_update(self, store: Store, peers: Peers) -> None:
        counters = peers(3)
        for peer in counters:
            peer.tell("count_up", name="shared", times=20)
        for peer in counters:
            peer.hear()
        document = self.runner.run(store.get_document("counters", "system", "shared"))
        assert document is not None
        assert (document.body, document.version) == ("60", 60)
