"""Invalid arguments: every store refuses the same calls, with the same error and message."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from duly.errors import BackendUnavailable, DulyError, InternalError
from duly.stores import MemoryStore
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.arguments import batches
from duly.testing.conformance.arguments.batches import Call
from duly.testing.conformance.arguments.samples import CALLS, IN_TRANSACTION, NOTHING, spoilt_calls
from duly.testing.conformance.suite import StoreConformance, case


class ArgumentConformance(StoreConformance):
    """Cases for invalid, empty, duplicate and oversized arguments."""

    def test_every_verb_is_called(self) -> None:
        verbs = {
            name
            for name, _ in inspect.getmembers(Store, inspect.isfunction)
            if not name.startswith("_")
        }
        assert verbs == CALLS.keys() | NOTHING | IN_TRANSACTION

    @case
    async def test_right_arguments_are_taken(self, store: Store) -> None:
        for verb, arguments in CALLS.items():
            answer, _ = await said(store, verb, arguments)
            assert answer == "", (verb, answer)

    @case
    async def test_wrong_arguments_are_refused_alike(
        self, store: Store, clock: ManualClock
    ) -> None:
        reference = MemoryStore(clock)
        different: list[str] = []
        for call in spoilt_calls():
            expected, _ = await said(reference, call.verb, call.arguments)
            found, _ = await said(store, call.verb, call.arguments)
            if found != expected or found.startswith("!"):
                different.append(
                    f"{call.verb}({call.where})\n    memory: {expected}\n    here:   {found}"
                )
        assert not different, f"{len(different)}:\n" + "\n".join(different[:40])

    @case
    async def test_empty_lists(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.nothing())

    @case
    async def test_doubles_in_one_batch(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.doubles())

    @case
    async def test_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.too_many())

    @case
    async def test_ids_that_are_taken(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.taken_ids())

    @case
    async def test_versions_that_do_not_fit(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.versions())

    @case
    async def test_backfills_out_of_range(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.backfills())

    @case
    async def test_locks_out_of_range(self, store: Store, clock: ManualClock) -> None:
        await _compare(store, clock, batches.locks())


async def _compare(store: Store, clock: ManualClock, calls: Sequence[Call]) -> None:
    reference = MemoryStore(clock)
    for verb, arguments in calls:
        expected = await said(reference, verb, arguments)
        assert await said(store, verb, arguments) == expected, verb
        assert not expected[0].startswith("!"), expected


async def said(store: Store, verb: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    """Call a verb; return its error ("": none) and its result.

    A text that begins with "!" is an error that no invalid argument may cause.
    """
    method: Callable[..., Any] = getattr(store, verb)
    try:
        answer = method(**arguments)
        return "", await answer if inspect.isawaitable(answer) else None
    except (BackendUnavailable, InternalError) as error:
        return f"!{type(error).__name__}: {error}", None
    except DulyError as error:
        return f"{type(error).__name__}: {error}", None
    except Exception as error:  # noqa: BLE001 - no other error may leave a store
        return f"!{type(error).__name__}: {error}", None
