"""Schedule quotas of owners: counts that are exact when an owner is near its limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.engine.kinds import COUNTED, COUNTED_OF_FLOW
from duly.engine.transaction import Tx
from duly.model.schedule_writes import ScheduleWrite
from duly.rules.quotas import Holdings

MAX_WRITERS_UNSEEN = 10
"""Concurrent writers that could exceed a limit unseen; an owner within their reach is near it."""


def holdings(tx: Tx, writes: Sequence[ScheduleWrite]) -> Holdings:
    """Return the schedule counts of owners that get more; hold the guards of those near a limit.

    Call it after rows and definitions are held: a holder of a guard must not wait for them.
    An owner far from its limits needs no guard, so its writers do not wait for each other.
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
