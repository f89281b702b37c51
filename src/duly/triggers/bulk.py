"""Station 1: many rows at once.

Takes triggers and instants; gives the next time of each. Rows with the same wall-clock rule share
the work: between two fires of a rule every instant has the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.triggers.core import WallCore
from duly.triggers.instants import END_MS, check_asked
from duly.triggers.trigger import Trigger


def next_after_many(triggers: Sequence[Trigger], instants_ms: Sequence[int]) -> list[int | None]:
    """What next_after_ms() would answer for each pair, in the same order.

    Instants are visited in ascending order, as a claim returns them, so that the span of each
    rule (from, next fire) only moves forward and no answer is computed twice.
    """
    answers: list[int | None] = [None] * len(instants_ms)
    spans: dict[WallCore, int] = {}
    if len(triggers) != len(instants_ms):
        raise ValueError(f"{len(triggers)} triggers but {len(instants_ms)} instants")
    order = sorted(range(len(instants_ms)), key=instants_ms.__getitem__)
    for i in (*order[:1], *order[-1:]):
        check_asked(instants_ms[i])
    for i in order:
        trigger, ms = triggers[i], instants_ms[i]
        core = trigger.core
        if core is None or trigger.limits.start_ms is not None:
            answers[i] = trigger.next_after_ms(ms)
            continue
        until = spans.get(core, 0)
        if until <= ms:
            # The core's answer, not the trigger's: an end_at must not end the others that share it.
            # The end of time stands for "none" and keeps its span open for ever.
            until = spans[core] = min(core.next_seconds(ms // 1000) * 1000, END_MS)
        end_ms = trigger.limits.end_ms
        if until < END_MS and (end_ms is None or until <= end_ms):
            answers[i] = until
    return answers
