"""Limits of owners: how many schedules each has, exact where one more could be too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.engine.kinds import COUNTED, COUNTED_OF_FLOW
from duly.engine.transaction import Tx
from duly.model.schedule_writes import ScheduleWrite
from duly.rules.quotas import Holdings

MAX_WRITERS_UNSEEN = 10
"""An owner is near a limit where so many writers, each unseen by the others, could pass it."""


def holdings(tx: Tx, writes: Sequence[ScheduleWrite]) -> Holdings:
    """Count the schedules of owners that are to get more; hold the guards of those near a limit.

    Called after the rows and definitions are held: whoever has a guard waits for none of them.
    Far from its limits an owner needs no guard, and nobody waits for another transaction.
    """
    found = _count(tx, writes)
    near = _near(writes, found)
    if not near:
        return found
    for scope in sorted(near):
        tx.guard(f"scope:{scope}")
    again = _count(tx, [write for write in writes if write.key.scope in near])
    dict.update(found.scopes, again.scopes)  # a Counter's own update would add
    dict.update(found.flows, again.flows)
    return found


def _near(writes: Sequence[ScheduleWrite], found: Holdings) -> set[str]:
    more = Counter(write.key.scope for write in writes)
    more_of_flow = Counter((write.key.scope, write.key.flow) for write in writes)
    near = set()
    for key, limits in {write.key: write.limits for write in writes}.items():
        flow = key.scope, key.flow
        in_scope = found.scopes[key.scope] + more[key.scope]
        in_flow = found.flows[flow] + more_of_flow[flow]
        most_in_flow = limits.schedules_per_flow
        if MAX_WRITERS_UNSEEN * in_scope > limits.schedules:
            near.add(key.scope)
        if most_in_flow is not None and MAX_WRITERS_UNSEEN * in_flow > most_in_flow:
            near.add(key.scope)
    return near


def _count(tx: Tx, writes: Sequence[ScheduleWrite]) -> Holdings:
    found = Holdings()
    scopes = tx.count_many(COUNTED, [(write.key.scope,) for write in writes])
    found.scopes.update({str(scope): count for (scope,), count in scopes.items()})
    limited = [each.key for each in writes if each.limits.schedules_per_flow is not None]
    flows = tx.count_many(COUNTED_OF_FLOW, [(key.scope, key.flow) for key in limited])
    found.flows.update({(str(scope), str(flow)): count for (scope, flow), count in flows.items()})
    return found
