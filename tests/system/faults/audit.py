"""What is left after a fault, held against what handlers did: the judge of every scenario."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from duly.model.events import JobEvent
from duly.model.jobs import FINAL, Job, JobId, JobState, may_go
from duly.stores.port import Store
from tests.system.faults.application import app

RECOVERY_S = 10.0
"""A recovery may take as long as a lease, and this much more."""
LISTED = 5
"""Jobs named in a line, most."""
SLACK_MS = 200
"""A claim may be stored so long after the process that asked for it was killed."""
RATE_SHARE = 0.8
"""Of the completion rate before a fault, least afterwards; judged in the long form."""
COLUMNS = ("enqueued", "ran", "repeated", "finished", "dead", "lost", "doubled")


class Interruption(NamedTuple):
    """A claim that was lost."""

    worker: str
    claimed_ms: int
    rescued_ms: int
    """When the job was queued again."""
    again_ms: int
    """When the job was claimed again."""


@dataclass
class Verdict:
    """One line of the table, and what is wrong."""

    scenario: str
    enqueued: int = 0
    ran: int = 0
    """Handlers that were started."""
    repeated: int = 0
    """Starts beyond the first of a job, each under a claim of its own: at least once allows it."""
    finished: int = 0
    dead: int = 0
    lost: int = 0
    """Jobs that are gone, have not ended, or ended well though no handler did."""
    doubled: int = 0
    """Jobs that ended twice, or a claim of which was begun twice."""
    draining_cpu: float | None = None
    """Share of a processor that a worker used while it waited for a handler to end."""
    recovery_s: float | None = None
    """From the end of a fault until a job was completed, and from the death of a worker until every
    job that it had claimed was claimed again; the longest of all."""
    limit_s: float | None = None
    """How long a recovery may take."""
    rate: float | None = None
    """Jobs completed in a second after the fault, as a share of those before it."""
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    completed_at_ms: list[int] = field(default_factory=list)
    """When jobs succeeded, by the clock of the database."""
    interrupted: list[Interruption] = field(default_factory=list)
    repeats: dict[str, int] = field(default_factory=dict)
    """How often jobs were started, where more than once."""

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.doubled and not self.faults


@dataclass(frozen=True)
class Started:
    """What the journal says of one job."""

    starts: Counter[int]
    """Handlers begun, by fence."""
    ends: int


def read_journal(path: Path) -> dict[str, Started]:
    """The journal by job."""
    found: dict[str, tuple[Counter[int], list[int]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        job_id, fence, what, _ = line.split()
        starts, ends = found.setdefault(job_id, (Counter(), []))
        if what == "start":
            starts[int(fence)] += 1
        else:
            ends.append(int(fence))
    return {job_id: Started(starts, len(ends)) for job_id, (starts, ends) in found.items()}


async def judge(
    store: Store, scenario: str, ids: Sequence[JobId], planted: int, journal: Path
) -> Verdict:
    """Read everything and decide."""
    verdict = Verdict(scenario, enqueued=len(ids))
    done = read_journal(journal)
    for job_id in ids:
        job = await store.get_job(job_id)
        started = done.get(job_id, Started(Counter(), 0))
        verdict.ran += started.starts.total()
        if job is None:
            verdict.lost += 1
            continue
        _judge_job(verdict, job, await store.job_events(job_id), started)
    if verdict.dead != planted:
        verdict.faults.append(f"{verdict.dead} jobs are dead; planted: {planted}")
    return verdict


def judge_recovery(
    verdict: Verdict,
    fault_ends: Sequence[int],
    lease_s: float,
    deaths: Mapping[str, int] | None = None,
    in_front_until_ms: int = 0,
) -> None:
    """Time how long it took until jobs were completed again, after each end of a fault.

    `deaths` are when workers died: from then on the time counts until jobs that they had claimed
    are queued and claimed again, all of them. Where jobs of a higher priority occupy the slots, the
    claims count from `in_front_until_ms`.
    """
    limit_s = verdict.limit_s = lease_s + RECOVERY_S
    recoveries_ms: list[int] = []
    for end in fault_ends:
        after = [each for each in verdict.completed_at_ms if each >= end]
        if after:
            recoveries_ms.append(min(after) - end)
        else:
            verdict.faults.append("no job was completed after the fault")
    for each in verdict.interrupted:
        died_ms = (deaths or {}).get(each.worker)
        if died_ms is not None and died_ms <= each.again_ms:
            recoveries_ms.append(each.rescued_ms - died_ms)
            recoveries_ms.append(each.again_ms - max(died_ms, in_front_until_ms))
            continue
        # The first fault after a claim is the one that ended it, or earlier: never too short.
        since_ms = each.claimed_ms - SLACK_MS
        ends = [end for end in sorted(fault_ends) if since_ms <= end <= each.again_ms][:1]
        recoveries_ms += [each.again_ms - end for end in ends]
    if recoveries_ms:
        verdict.recovery_s = max(recoveries_ms) / 1000
        if verdict.recovery_s > limit_s:
            took = f"recovered after {verdict.recovery_s:.1f} s"
            verdict.faults.append(f"{took}; limit: {limit_s:g} s")


def judge_rate(
    verdict: Verdict, before_ms: tuple[int, int], after_ms: tuple[int, int], least: float
) -> None:
    """Compare the rate of completions after a fault with the rate before it."""
    before, after = (_per_s(verdict.completed_at_ms, *span) for span in (before_ms, after_ms))
    verdict.rate = after / before if before else 0.0
    if verdict.rate < least:
        verdict.faults.append(f"{verdict.rate:.2f} of the rate before the fault; least: {least:g}")


def _per_s(completed_at_ms: Sequence[int], start_ms: int, end_ms: int) -> float:
    count = sum(start_ms <= each < end_ms for each in completed_at_ms)
    return count * 1000 / max(1, end_ms - start_ms)


def _judge_job(verdict: Verdict, job: Job, events: Sequence[JobEvent], started: Started) -> None:
    verdict.finished += job.state is JobState.SUCCEEDED
    verdict.dead += job.state is JobState.DEAD
    ended_well = sum(event.state is JobState.SUCCEEDED for event in events)
    verdict.completed_at_ms += [
        event.at_ms for event in events if event.state is JobState.SUCCEEDED
    ]
    if job.state not in FINAL or (ended_well and not started.ends):
        verdict.lost += 1
    verdict.interrupted += _interrupted(events)
    if (starts := started.starts.total()) > 1:
        verdict.repeated += starts - 1
        verdict.repeats[job.id] = starts
    # A success stored over another is counted, and the row tells of one.
    is_overwritten = job.state is JobState.SUCCEEDED and job.events > len(events)
    action = app.actions.get(job.action)
    # What the code declares, and not what is stored: a declaration may have been ignored.
    is_once = action is not None and action.delivery == "at_most_once"
    if is_once and job.delivery != "at_most_once":
        verdict.faults.append(f"{job.id}: {job.action} is declared at_most_once, stored otherwise")
    is_repeated = is_once and started.starts.total() > 1
    is_begun_twice = max(started.starts.values(), default=0) > 1
    if ended_well > 1 or is_overwritten or is_begun_twice or is_repeated:
        verdict.doubled += 1
    claims = {event.attempt for event in events if event.state is JobState.PROCESSING}
    if unknown := set(started.starts) - claims:
        verdict.faults.append(f"{job.id}: ran under fences {unknown} that no claim gave")
    if fault := fault_of_history(job, events):
        verdict.faults.append(f"{job.id}: {fault}")


def _interrupted(events: Sequence[JobEvent]) -> list[Interruption]:
    """Return lost claims of a job that was claimed again."""
    claims = [event for event in events if event.state is JobState.PROCESSING]
    lost = {event.attempt: event.at_ms for event in events if event.ended_as == "lost"}
    return [
        Interruption(one.actor or "", one.at_ms, lost[one.attempt], next_.at_ms)
        for one, next_ in pairwise(claims)
        if one.attempt in lost
    ]


def fault_of_history(job: Job, events: Sequence[JobEvent]) -> str | None:
    """What is wrong with the events of a job, if anything is."""
    states = [event.state for event in events]
    if [event.seq for event in events] != list(range(1, job.events + 1)):
        return f"numbers {[event.seq for event in events]} of {job.events} events"
    if states[0] not in (JobState.QUEUED, JobState.SCHEDULED) or states[-1] is not job.state:
        return f"begins {states[0]}, ends {states[-1]}, is {job.state}"
    illegal = [f"{a} -> {b}" for a, b in pairwise(states) if not may_go(a, b)]
    return f"went {', '.join(illegal)}" if illegal else None


def table(verdicts: Sequence[Verdict]) -> str:
    """All lines, and under them what is wrong."""
    lines = [_cells("scenario", *COLUMNS, "drain cpu", "recovery", "limit", "rate", "seconds")]
    for each in verdicts:
        cpu = "-" if each.draining_cpu is None else f"{each.draining_cpu:.0%}"
        counts = [getattr(each, name) for name in COLUMNS]
        recovery = "-" if each.recovery_s is None else f"{each.recovery_s:.1f} s"
        limit = "-" if each.limit_s is None else f"{each.limit_s:g} s"
        rate = "-" if each.rate is None else f"{each.rate:.2f}"
        times = (cpu, recovery, limit, rate, f"{each.seconds:.1f}")
        lines.append(_cells(each.scenario, *counts, *times))
    for each in verdicts:
        if each.repeats:
            listed = [f"{job_id} {starts}" for job_id, starts in each.repeats.items()]
            more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            lines.append(f"repeated: {each.scenario}: {', '.join(listed[:LISTED])}{more}")
    for each in verdicts:
        lines += [f"wrong: {each.scenario}: {fault}" for fault in each.faults[:5]]
    return "\n".join(lines)


def _cells(name: str, *cells: object) -> str:
    return f"{name:<34}" + "".join(f"{cell!s:>10}" for cell in cells)
