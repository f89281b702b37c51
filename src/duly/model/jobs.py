"""Jobs and their states.

A job is one durable call of one action. NewJob is stored, Job is read, LeasedJob is what a worker
gets from a claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Literal, NamedTuple, NewType, get_args

import msgspec

from duly.errors import InvalidInput, shown
from duly.model.retries import RetryPolicy
from duly.triggers.durations import check_duration
from duly.triggers.instants import END_MS, STORED_FROM_MS

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
Delivery = Literal["at_least_once", "at_most_once"]
Turn = Literal["asks", "waits"]
"""How a job gets its schedule's running marker: by the overlap policy (`asks`), or it `waits`.

Catch-up and backfill jobs wait. A job without a turn needs no marker: it has no schedule, or its
schedule allows overlap.
"""

DEFAULT_QUEUE = "default"
SYSTEM_WORKSPACE = "system"
DEFAULT_RETRY = RetryPolicy()
DEFAULT_TIMEOUT_MS = 300_000
ALL_QUEUES = "*all*"
"""In queue settings: every queue. No queue may have this name."""

MAX_INPUT_BYTES = 256 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_PROGRESS_BYTES = 1024
MAX_ERROR_CHARACTERS = 2_000
MAX_TEXT = 255
MAX_PRIORITY = 10_000
MAX_TIMEOUT_MS = 7 * 86_400_000
KEY_TTL_MS = 7 * 86_400_000

_PRIORITY_STEP_MS = 1 << 43
"""Larger than any stored instant, so one point of priority outweighs any waiting time."""


class JobState(StrEnum):
    """The state of a job."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Passed through in one transaction on the way to retrying or dead; a job never stays in it."""
    RETRYING = "retrying"
    CANCELLED = "cancelled"
    DEAD = "dead"
    DELETED = "deleted"


class StartMode(IntEnum):
    """The start mode of a job, which decides what a lost lease means (ADR 0027)."""

    AHEAD = 0
    """Its start is not recorded: after a loss it is unknown whether its handler had started."""
    RECORDED = 1
    """It was lost once. Its start is recorded before its handler is called."""
    ISOLATED = 2
    """It was running when its worker died: it runs in its own process."""
    ONCE = 3
    """At most once: its start is recorded, and it is never started again."""


_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.SCHEDULED: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.QUEUED: frozenset({_S.PROCESSING, _S.CANCELLED, _S.DELETED}),
    _S.PROCESSING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.QUEUED}),
    _S.FAILED: frozenset({_S.RETRYING, _S.DEAD, _S.QUEUED}),
    _S.RETRYING: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.DEAD: frozenset({_S.QUEUED, _S.DELETED}),
    _S.SUCCEEDED: frozenset({_S.DELETED}),
    _S.CANCELLED: frozenset({_S.DELETED}),
    _S.DELETED: frozenset(),
}
FINAL = frozenset({_S.SUCCEEDED, _S.CANCELLED, _S.DEAD, _S.DELETED})
"""Final states; only jobs in these are pruned."""


def may_go(state: JobState, target: JobState) -> bool:
    """Return whether the transition table allows it; staying in a state is not a transition."""
    return target in TRANSITIONS[state]


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job for insert_jobs(). The caller chooses the id, so repeating the call is harmless.

    Not tracked by the garbage collector: it cannot be part of a reference cycle.
    """

    id: JobId
    action: str
    """`flow.action`."""
    input: str = "null"
    """JSON text."""
    queue: str = DEFAULT_QUEUE
    workspace: str = SYSTEM_WORKSPACE
    scope: str = "system"
    """The scope the job runs as."""
    priority: int = 0
    """Higher runs sooner, within a queue."""
    aging_ms: int = 0
    """Waiting time that outweighs one point of priority; 0: none does."""
    run_at_ms: int | None = None
    """Earliest start; None: now."""
    retry: RetryPolicy = DEFAULT_RETRY
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    delivery: Delivery = "at_least_once"
    key: str | None = None
    """Idempotency key: unique for (workspace, action)."""
    key_ttl_ms: int = KEY_TTL_MS
    schedule_id: str | None = None
    nominal_ms: int | None = None
    policies: str | None = None
    """Policies of its schedule, as compact JSON; applied when its run time comes."""
    turn: Turn | None = None
    in_line: bool = False
    """It stays scheduled until the previous run has ended, whatever its run time."""
    correlation_id: str | None = None
    metadata: str | None = None
    """JSON text; visible to everyone who may see the job."""

    def __post_init__(self) -> None:
        for what in ("id", "action", "workspace", "scope"):
            check_text(what, getattr(self, what))
        check_queue(self.queue)
        for what in ("key", "correlation_id"):
            if getattr(self, what) is not None:
                check_text(what, getattr(self, what))
        _check_json_text("input", self.input)
        size = len(self.input) if self.input.isascii() else len(self.input.encode())
        if size > MAX_INPUT_BYTES:
            raise InvalidInput(
                f"input of job {self.id} has {size} bytes; allowed: {MAX_INPUT_BYTES}. "
                "Store large data elsewhere and pass a reference to it"
            )
        _check_number("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        check_duration("timeout_ms", self.timeout_ms, 1, MAX_TIMEOUT_MS)
        check_duration("aging_ms", self.aging_ms, 0, MAX_TIMEOUT_MS)
        check_duration("key_ttl_ms", self.key_ttl_ms, 1, 366 * 86_400_000)
        for what in ("run_at_ms", "nominal_ms"):
            if getattr(self, what) is not None:
                _check_number(what, getattr(self, what), STORED_FROM_MS, END_MS)
        if self.schedule_id is not None:
            check_text("schedule_id", self.schedule_id)
        for what in ("metadata", "policies"):
            if getattr(self, what) is not None:
                _check_json_text(what, getattr(self, what))
        _check_choice("delivery", self.delivery, get_args(Delivery))
        _check_choice("turn", self.turn, (None, *get_args(Turn)))
        _check_choice("in_line", self.in_line, (False, True))
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidInput(f"retry is {shown(self.retry)}; pass a RetryPolicy")

    @property
    def max_attempts(self) -> int:
        """Return the highest number of attempts; 1 for at-most-once delivery."""
        return 1 if self.delivery == "at_most_once" else self.retry.attempts

    @property
    def start_mode(self) -> StartMode:
        """Return how the first attempt is started."""
        return StartMode.ONCE if self.delivery == "at_most_once" else StartMode.AHEAD


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job. The input may contain secrets: operators get a JobView instead."""

    id: JobId
    action: str
    queue: str
    workspace: str
    scope: str
    state: JobState
    priority: int
    run_at_ms: int
    created_at_ms: int
    finished_at_ms: int | None
    attempts: int
    """Tries that count: not losses, nor releases before the handler was called."""
    max_attempts: int
    start_mode: StartMode
    fence: int
    """Claims so far; the number of the current or last attempt."""
    events: int
    """Transitions so far; the number of the last event."""
    retry: RetryPolicy
    timeout_ms: int
    worker: WorkerId | None
    lease_until_ms: int | None
    unstarted: int | None
    """The fence of a claim whose start is not recorded yet."""
    cancel_asked: bool
    key: str | None
    schedule_id: str | None
    nominal_ms: int | None
    policies: str | None
    turn: Turn | None
    in_line: bool
    """It waits until an earlier run of its schedule has ended."""
    correlation_id: str | None
    metadata: str | None
    input: str
    result: str | None
    error: str | None
    progress: str | None
    """JSON text: {"percent": 40, "message": "..."}."""

    @property
    def delivery(self) -> Delivery:
        """Return the delivery guarantee."""
        return "at_most_once" if self.start_mode is StartMode.ONCE else "at_least_once"


class Token(NamedTuple):
    """The right to work on one (queue, workspace) pair for a time; workspace "": the queue."""

    queue: str
    workspace: str
    number: int
    fence: int


class LeasedJob(NamedTuple):
    """A claimed job as a worker gets it. A tuple, because a claim creates hundreds."""

    id: JobId
    action: str
    input: str
    queue: str
    workspace: str
    scope: str
    attempts: int
    max_attempts: int
    careful: int
    """A StartMode. Not 0: the start must be recorded before the handler is called."""
    fence: int
    retry: str
    timeout_ms: int
    schedule_id: str | None
    nominal_ms: int | None
    correlation_id: str | None
    place: int
    """Its position in the queue; see place_of()."""

    @property
    def attempt(self) -> int:
        """Return the number of this attempt, as in events and lists of attempts.

        Every claim has a new number, so two attempts never share one.
        """
        return self.fence

    @property
    def tries(self) -> int:
        """Return how many tries count against `max_attempts`, this one included."""
        return self.attempts + 1


def place_of(priority: int, run_at_ms: int, aging_ms: int) -> int:
    """Return a job's position in its queue: lower runs sooner.

    One number that fits an index: without aging a point of priority outweighs any waiting time,
    with aging `aging_ms`. Changing the run time changes the position by the same amount.
    """
    return run_at_ms - priority * (aging_ms or _PRIORITY_STEP_MS)


@lru_cache(maxsize=256)
def retry_from(text: str) -> RetryPolicy:
    """Return the retry policy of its stored form."""
    return msgspec.json.decode(text, type=RetryPolicy)


@lru_cache(maxsize=256)
def retry_text(retry: RetryPolicy) -> str:
    """Return the stored form of a retry policy."""
    return msgspec.json.encode(retry).decode()


def check_text(what: str, text: object) -> None:
    """Refuse anything but storable text of 1 to MAX_TEXT characters."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT or not is_storable(text):
        raise InvalidInput(f"{what} is {shown(text)!a}; allowed: text of 1 to {MAX_TEXT}")


def check_queue(queue: object) -> None:
    """Refuse an invalid queue name."""
    check_text("queue", queue)
    assert isinstance(queue, str)
    if queue.startswith("*"):
        raise InvalidInput(
            f"queue is {queue!r}; a name may not begin with '*', and patterns are not supported: "
            "name each queue. `duly queues pause --all` and admin.pause_all() pause every queue"
        )
    if not queue.isprintable():
        raise InvalidInput(f"queue is {queue[:60]!r}; allowed: printable characters")


def check_queues(queues: Sequence[str]) -> tuple[str, ...]:
    """Return the queue names; refuse invalid names, an empty list, and a plain string."""
    if isinstance(queues, str):
        raise InvalidInput(f"queues is {queues!r}, a string; pass a list of names: [{queues!r}]")
    if not queues:
        raise InvalidInput("queues is empty; name at least one queue")
    for queue in queues:
        check_queue(queue)
    return tuple(queues)


def is_storable(text: str) -> bool:
    """Return whether every database can store it: no NUL, and no half of a surrogate pair."""
    if "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _check_json_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is {shown(text)}; it must be JSON text")
    if not is_storable(text):
        raise InvalidInput(f"{what} has a NUL character or half of a surrogate pair; escape it")


def _check_choice(what: str, given: object, allowed: tuple[object, ...]) -> None:
    if not any(given is each or (given == each and type(given) is str) for each in allowed):
        names = ", ".join(map(str, allowed))
        raise InvalidInput(f"{what} is {shown(given)}; allowed: {names}")


def _check_number(what: str, number: object, least: int, most: int) -> None:
    if type(number) is not int or not least <= number <= most:
        raise InvalidInput(f"{what} is {shown(number)}; allowed: {least} to {most}")
