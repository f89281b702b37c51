"""Measures several contestants on a shared machine.

Takes contestants whose work is cut into batches; returns the median and the minimum time per call.
In each round they alternate batch by batch, so that load from other processes affects all of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
Batch = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work: the same batches in every round, with `calls` calls in total.

    The untimed `warm_up` runs before each timed batch. Without it a fast contestant would be timed
    mostly with caches filled by the slow one before it.
    """

    name: str
    batches: Sequence[Batch]
    calls: int
    warm_up: Batch


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per call."""

    minimum_us: float
    median_us: float


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return the items in order, cut into batches."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def measure(contestants: Sequence[Contestant], rounds: int) -> dict[str, Timing]:
    """Time every contestant in interleaved rounds, with the garbage collector off."""
    seconds = {each.name: [[0.0] * rounds for _ in each.batches] for each in contestants}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            # The order rotates, since each contestant runs with caches filled by the one before.
            first = turn % len(contestants)
            _one_round([*contestants[first:], *contestants[:first]], turn, seconds)
    finally:
        gc.enable()
    return {each.name: _timing(seconds[each.name], each.calls) for each in contestants}


def _one_round(
    contestants: Sequence[Contestant], turn: int, seconds: dict[str, list[list[float]]]
) -> None:
    for i in range(max(len(each.batches) for each in contestants)):
        for each in contestants:
            if i < len(each.batches):
                batch = each.batches[i]
                each.warm_up()
                started = perf_counter()
                batch()
                seconds[each.name][i][turn] = perf_counter() - started


def _timing(times: list[list[float]], calls: int) -> Timing:
    """Return the timing; the minimum takes each batch from its own fastest round.

    A whole round of a slow contestant is long and rarely undisturbed, so minima of whole rounds
    would include more noise for it than for a fast one.
    """
    per_round = [sum(each) for each in zip(*times, strict=True)]
    per_call = 1e6 / calls
    return Timing(sum(map(min, times)) * per_call, median(per_round) * per_call)
