"""Overlap and misfire decisions on a schedule's jobs that become due.

One job of a schedule at a time holds its running marker, from queued to its end, retries included.
A due job takes the marker, waits in line for it, or is skipped. The misfire policy applies to a job
that is overdue by more than the grace because nothing was running to queue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from duly.model.jobs import JobId, Turn
from duly.model.schedules import Overlap, Policies


class Asking(NamedTuple):
    """A due job that requests the running marker."""

    job_id: JobId
    turn: Turn
    overlap: Overlap
    run_at_ms: int = 0
    """The run time of its occurrence; a retry does not move it."""


@dataclass(slots=True)
class OverlapDecision:
    """The decision on the due jobs of one schedule."""

    holder: JobId | None
    """The holder of the marker after the decision."""
    is_new: bool = False
    """The holder is one of the asking jobs; it is queued."""
    in_line: list[JobId] = field(default_factory=list)
    """Asking jobs that stay scheduled until it is their turn."""
    skipped: dict[JobId, str] = field(default_factory=dict)
    """Asking or waiting jobs that are skipped, with the reason."""
    cancels: JobId | None = None
    """The holder, if it is to be cancelled."""


def decide_overlap(
    asking: Sequence[Asking],
    holder: JobId | None,
    line: Sequence[Asking] = (),
    held_at_ms: int | None = None,
) -> OverlapDecision:
    """Decide on the due jobs of one schedule, in order of their times; `line` already waits.

    `held_at_ms` is the run time of a holder that did not wait for its turn, if it matters.
    """
    decision = OverlapDecision(holder)
    standing = list(line)
    new: Asking | None = None
    for each in asking:
        if decision.holder is None:
            new, decision.holder, decision.is_new = each, each.job_id, True
        elif (why := _why_not(each, standing, decision.holder, held_at_ms)) is not None:
            decision.skipped[each.job_id] = why
        else:
            standing.append(each)
            decision.in_line.append(each.job_id)
            if each.turn == "waits" or each.overlap != "cancel_running":
                continue
            _overtake(each, standing, decision)
            if new is None:
                decision.cancels = decision.holder
            elif new.turn == "asks":
                decision.skipped[new.job_id] = _came_after(each.job_id)
                new = _step_forward(standing, decision)
    return decision


def _step_forward(standing: list[Asking], decision: OverlapDecision) -> Asking:
    """Make the first in line the holder, in place of a new one that is not queued yet."""
    first = standing.pop(0)
    decision.in_line.remove(first.job_id)
    decision.holder = first.job_id
    return first


def _why_not(
    each: Asking, standing: Sequence[Asking], holder: JobId, held_at_ms: int | None
) -> str | None:
    """Return why a job's own policy does not let it wait in line; None: it may wait."""
    if each.turn == "waits":
        return None
    if each.overlap == "cancel_running":
        # Promotions at the same time may come in any order; an older run never stops a newer one.
        if held_at_ms is not None and held_at_ms > each.run_at_ms:
            return _came_after(holder)
        asked = (other for other in standing if other.turn == "asks")
        later = [other.job_id for other in asked if other.run_at_ms > each.run_at_ms]
        return _came_after(later[-1]) if later else None
    has_place = each.overlap == "buffer_one" and all(other.turn == "waits" for other in standing)
    return None if has_place else f"job {holder} had not ended"


def _overtake(each: Asking, standing: list[Asking], decision: OverlapDecision) -> None:
    """Skip the waiting jobs that a newer one replaces."""
    for other in [other for other in standing if other.turn == "asks" and other != each]:
        standing.remove(other)
        if other.job_id in decision.in_line:
            decision.in_line.remove(other.job_id)
        decision.skipped[other.job_id] = _came_after(each.job_id)


def _came_after(job_id: JobId) -> str:
    return f"job {job_id} came after it"


class Unstarted(NamedTuple):
    """A job of a schedule whose time has come, before it is queued."""

    job_id: JobId
    run_at_ms: int
    turn: Turn | None


def decide_late(jobs: Sequence[Unstarted], policies: Policies, now_ms: int) -> set[JobId]:
    """Return the jobs of one schedule that are missed: overdue by more than the grace.

    As in planning: the policy decides how many of the newest are kept; `run_once` keeps none if a
    job is on time. Jobs that wait for their turn are late on request and never missed.
    """
    asking = sorted((job for job in jobs if job.turn != "waits"), key=lambda job: job.run_at_ms)
    late = [job for job in asking if job.run_at_ms < now_ms - policies.grace_ms]
    misfire = policies.misfire
    kept: list[Unstarted] = []
    if misfire.kind == "run_once" and len(late) == len(asking):
        kept = late[-1:]
    elif misfire.kind == "catch_up":
        young = [job for job in late if now_ms - job.run_at_ms <= misfire.max_age_ms]
        kept = young[-misfire.limit :]
    return {job.job_id for job in late} - {job.job_id for job in kept}
