"""The tick: claims due occurrences of hand-over `http` and posts them.

Claims no more than it can post at once, so that every claimed occurrence is being posted; answers
are stored as they come, in batches. The leases of a tick that dies expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, cast

from duly.clock import Clock, SystemClock
from duly.dispatch.options import HttpOptions, gateways_of
from duly.dispatch.resolver import call
from duly.dispatch.tick.http_client import HttpClient, Sender
from duly.dispatch.tick.index_claims import IndexClaims
from duly.dispatch.tick.options import TickOptions, check_base_url
from duly.dispatch.tick.posting import Backoff, Reply, answer_of, post_of
from duly.engine.ids import new_id
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Dispatching
from duly.model.ledger import OccurrenceState
from duly.operate.redaction.raised import traceback_of
from duly.rules.dispatches import decide_answer
from duly.settings import Settings
from duly.stores.port import DispatchStore, ScheduleIndex
from duly.triggers.instants import to_ms

log = logging.getLogger(__name__)

NO_INDEX = (
    "a tick needs an index to claim from, and this object has none (neither claim_dispatches nor "
    "claim_due); pass the store of an application or a ScheduleIndex, or have its schedules fired "
    "from outside"
)
NO_FLOWS = "a tick needs flows: this application declares none; pass flows= to Duly"


@dataclass(slots=True)
class TickReport:
    """The report of one tick."""

    posted: int = 0
    closed: int = 0
    again: int = 0
    failed: int = 0

    def __add__(self, other: TickReport) -> TickReport:
        return TickReport(
            self.posted + other.posted,
            self.closed + other.closed,
            self.again + other.again,
            self.failed + other.failed,
        )

    def count(self, row: Dispatching, answer: DispatchAnswer) -> None:
        """Add one post, by the next state of its occurrence and not by the answer alone."""
        self.posted += 1
        match decide_answer(answer.end, row.delivery, row.tries, answer.reason).state:
            case OccurrenceState.SUCCEEDED:
                self.closed += 1
            case OccurrenceState.DISPATCHING:
                self.again += 1
            case _:
                self.failed += 1


@dataclass(slots=True)
class Batch:
    """The rows of one claim, and the answers so far."""

    claim_id: str
    answers: list[DispatchAnswer] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class TickPlace:
    """The address that a tick posts to, its secret and its flows."""

    base_url: str
    secret: str = field(repr=False)
    flows: tuple[str, ...] = ()


class TickClaims(Protocol):
    """The store calls that a tick needs."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        """Claim due occurrences."""

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        """Store the outcomes of posts."""


class Tick:
    """The poster of due occurrences; run_once() is one tick.

    `store` is a store, or a ScheduleIndex of the application's own: then each post is made at most
    once.
    """

    def __init__(
        self,
        store: DispatchStore | ScheduleIndex,
        place: TickPlace,
        options: TickOptions | None = None,
        *,
        sender: Sender | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        if not place.flows:
            raise InvalidInput(NO_FLOWS)
        self._store = claims_of(store)
        self._place = replace(place, base_url=check_base_url(place.base_url))
        self._options = options = TickOptions() if options is None else options
        self._sender = HttpClient(options) if sender is None else sender
        self._clock = SystemClock() if clock is None else clock
        self._random = Random() if random is None else random  # noqa: S311 - jitter
        self._backoff = Backoff(
            int(options.first_delay_s * 1000), int(options.longest_delay_s * 1000)
        )

    async def close(self) -> None:
        """Close the connections; closing twice is allowed."""
        await self._sender.close()

    async def run_once(self) -> TickReport:
        """Post due occurrences, up to max_per_tick; return a report.

        An error of the store is raised after the posts in progress have ended.
        """
        report = TickReport()
        async with asyncio.TaskGroup() as group:
            lost = await _Round(self, group, report).run()
        if lost is not None:
            raise lost
        return report

    async def claim(self, limit: int) -> tuple[str, list[Dispatching]]:
        """Claim due occurrences; repeat once under the same id if the answer was lost."""
        claim = DispatchClaim(
            claim_id=new_id("tick_", clock=self._clock),
            limit=limit,
            lease_ms=int(self._options.lease_s * 1000),
            flows=self._place.flows,
        )
        try:
            rows = await self._store.claim_dispatches(claim)
        except BackendUnavailable:
            rows = await self._store.claim_dispatches(claim)
        return claim.claim_id, rows

    async def post(self, row: Dispatching) -> DispatchAnswer:
        """Post one occurrence; never raises."""
        try:
            now_s = to_ms(self._clock.now()) // 1000
            sent = post_of(row, self._place.base_url, self._place.secret, now_s)
            reply = await self._sender.send(sent)
        except InvalidInput as error:  # a name that no URL can contain
            reply = Reply(400, failure=str(error))
        answer = answer_of(row, reply, self._backoff, self._random.random())
        await self._tell(row, reply.status)
        return answer

    async def end(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> None:
        """Store the outcomes of posts; if that fails, their leases expire."""
        try:
            await self._store.end_dispatches(claim_id, answers)
        except BackendUnavailable as error:
            log.warning("tick: %s", error, extra={"event": "tick.end_lost", "claim_id": claim_id})

    async def _tell(self, row: Dispatching, status: int) -> None:
        if self._options.on_dispatch is None:
            return
        try:
            await call(self._options.on_dispatch, row, status)
        except Exception as error:  # noqa: BLE001 - the application's own
            told = traceback_of(error)
            log.error("on_dispatch raised: %s", told, extra={"event": "tick.on_dispatch"})

    @property
    def concurrency(self) -> int:
        """The largest number of posts in progress."""
        return self._options.concurrency

    @property
    def most(self) -> int:
        """The largest number of posts of one tick."""
        return self._options.max_per_tick


def claims_of(source: DispatchStore | ScheduleIndex) -> TickClaims:
    """Return the source of claims, a store or an index of three methods; refuse anything else."""
    # By method and not by isinstance: a store keeps leases of posts, a bare index cannot.
    if hasattr(source, "claim_dispatches"):
        return cast(TickClaims, source)
    if not hasattr(source, "claim_due"):
        raise InvalidInput(NO_INDEX)
    return IndexClaims(source)


class _Round:
    """One running tick: slots, and batches that fill them."""

    def __init__(self, tick: Tick, group: asyncio.TaskGroup, report: TickReport) -> None:
        self._tick = tick
        self._group = group
        self._report = report
        self._free = tick.concurrency
        self._changed = asyncio.Event()

    async def run(self) -> BackendUnavailable | None:
        """Fill the slots until nothing is due; return the error that ended it early, or None."""
        left, lost = self._tick.most, None
        while left > 0:
            # Claim when half of the slots are free: few claims, and slots do not idle.
            await self._until(lambda: self._free * 2 >= self._tick.concurrency)
            limit = min(self._free, left)
            try:
                claim_id, rows = await self._tick.claim(limit)
            except BackendUnavailable as error:
                lost = error
                break
            left -= len(rows)
            self._free -= len(rows)
            batch = Batch(claim_id)
            for row in rows:
                self._group.create_task(self._post(batch, row))
            if len(rows) < limit:
                break
        await self._until(lambda: self._free == self._tick.concurrency)
        return lost

    async def _post(self, batch: Batch, row: Dispatching) -> None:
        try:
            answer = await self._tick.post(row)
            batch.answers.append(answer)
            self._report.count(row, answer)
            if batch.writer is None:
                batch.writer = self._group.create_task(self._write(batch))
        finally:
            self._free += 1
            self._changed.set()

    async def _write(self, batch: Batch) -> None:
        """Store answers, and then those that have come meanwhile."""
        while batch.answers:
            answers, batch.answers = batch.answers, []
            await self._tick.end(batch.claim_id, answers)
        batch.writer = None

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


def place_of(
    options: HttpOptions, settings: Settings, flows: tuple[str, ...], url: str | None = None
) -> TickPlace:
    """Return the address and secret of an application's tick; refused if not configured."""
    base_url = url or options.tick.base_url or settings.base_url
    if not base_url:
        raise InvalidInput(
            "a tick needs the base URL of the application; set DULY_BASE_URL, or pass base_url="
        )
    gateways = [each for each in gateways_of(options, settings) if each.is_system]
    if not gateways:
        raise InvalidInput("a tick needs a dispatch secret to send; set DULY_DISPATCH_SECRETS")
    return TickPlace(base_url, gateways[0].secret, flows)
