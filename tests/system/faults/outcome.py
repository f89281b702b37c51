"""The outcome of a scenario: the verdict of the audit, and how long the recovery took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.system.audit import Verdict

RECOVERY_S = 10.0
"""A recovery may take as long as a lease, and this much more."""
SLACK_MS = 200
"""A claim may be stored so long after the process that asked for it was killed."""
COLUMNS = (
    "enqueued",
    "ran",
    "repeated",
    "finished",
    "dead",
    "lost",
    "unfinished",
    "doubled",
    "deadlocks",
)


@dataclass
class Outcome:
    """One line of the table."""

    scenario: str
    verdict: Verdict
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

    @property
    def is_good(self) -> bool:
        """Return whether nothing is wrong."""
        return self.verdict.is_good

    def judge_recovery(
        self,
        fault_ends: Sequence[int],
        lease_s: float,
        deaths: Mapping[str, int] | None = None,
        in_front_until_ms: int = 0,
    ) -> None:
        """Time how long it took until jobs were completed again, after each end of a fault.

        `deaths` are when workers died: from then on the time counts until jobs that they had
        claimed are queued and claimed again, all of them. Where jobs of a higher priority occupy
        the slots, the claims count from `in_front_until_ms`.
        """
        limit_s = self.limit_s = lease_s + RECOVERY_S
        recoveries_ms = [
            *self._until_completed(fault_ends),
            *self._until_claimed(fault_ends, deaths or {}, in_front_until_ms),
        ]
        if recoveries_ms:
            self.recovery_s = max(recoveries_ms) / 1000
            if self.recovery_s > limit_s:
                took = f"recovered after {self.recovery_s:.1f} s"
                self.verdict.faults.append(f"{took}; limit: {limit_s:g} s")

    def _until_completed(self, fault_ends: Sequence[int]) -> list[int]:
        """Return how long it took after each fault until a job was completed."""
        found: list[int] = []
        for end in fault_ends:
            after = [each for each in self.verdict.completed_at_ms if each >= end]
            if after:
                found.append(min(after) - end)
            else:
                self.verdict.faults.append("no job was completed after the fault")
        return found

    def _until_claimed(
        self, fault_ends: Sequence[int], deaths: Mapping[str, int], in_front_until_ms: int
    ) -> list[int]:
        """Return how long it took until interrupted jobs were queued and claimed again."""
        found: list[int] = []
        for each in self.verdict.interrupted:
            died_ms = deaths.get(each.worker)
            if died_ms is not None and died_ms <= each.again_ms:
                found.append(each.rescued_ms - died_ms)
                found.append(each.again_ms - max(died_ms, in_front_until_ms))
                continue
            # The first fault after a claim is the one that ended it, or earlier: never too short.
            since_ms = each.claimed_ms - SLACK_MS
            ends = [end for end in sorted(fault_ends) if since_ms <= end <= each.again_ms][:1]
            found += [each.again_ms - end for end in ends]
        return found

    def judge_rate(
        self, before_ms: tuple[int, int], after_ms: tuple[int, int], least: float
    ) -> None:
        """Compare the rate of completions after a fault with the rate before it."""
        before, after = (self._per_s(*span) for span in (before_ms, after_ms))
        self.rate = after / before if before else 0.0
        if self.rate < least:
            fault = f"{self.rate:.2f} of the rate before the fault; least: {least:g}"
            self.verdict.faults.append(fault)

    def _per_s(self, start_ms: int, end_ms: int) -> float:
        count = sum(start_ms <= each < end_ms for each in self.verdict.completed_at_ms)
        return count * 1000 / max(1, end_ms - start_ms)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return all lines, and under them what is wrong."""
    lines = [_cells("scenario", *COLUMNS, "drain cpu", "recovery", "limit", "rate", "seconds")]
    for each in outcomes:
        cpu = "-" if each.draining_cpu is None else f"{each.draining_cpu:.0%}"
        counts = [getattr(each.verdict, name) for name in COLUMNS]
        recovery = "-" if each.recovery_s is None else f"{each.recovery_s:.1f} s"
        limit = "-" if each.limit_s is None else f"{each.limit_s:g} s"
        rate = "-" if each.rate is None else f"{each.rate:.2f}"
        times = (cpu, recovery, limit, rate, f"{each.seconds:.1f}")
        lines.append(_cells(each.scenario, *counts, *times))
    for each in outcomes:
        lines += each.verdict.lines(each.scenario)
    return "\n".join(lines)


def _cells(name: str, *cells: object) -> str:
    return f"{name:<34}" + "".join(f"{cell!s:>11}" for cell in cells)
