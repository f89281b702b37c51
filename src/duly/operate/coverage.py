"""Coverage of one schedule: the share of its expected times that fired, and their lateness. Pure.

The trigger determines how many times there were, the ledger summary what became of them. Times
during a pause are counted separately: they were not expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from duly.model.ledger import DECIDED, Occurrence, OccurrenceState
from duly.model.ledger_counts import LedgerSummary, OutcomeCount
from duly.model.plans import PAUSED, RUN_NOW
from duly.operate.why.history import Stretch, count_times
from duly.triggers.instants import from_ms

_FIRED = (OccurrenceState.FIRED, OccurrenceState.SUCCEEDED, OccurrenceState.FAILED)
_DUE = (*DECIDED, OccurrenceState.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Lateness percentiles of the sampled occurrences; all None if there are none."""

    looked_at: int
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Coverage of one schedule over a time window, counted in nominal times."""

    from_at: datetime
    """Later than requested if the ledger has too many rows or the schedule is younger."""
    to_at: datetime
    expected: int
    """Times that came while the schedule was not paused."""
    paused: int
    """Times that came during a pause."""
    fired: int
    """Expected times whose run began, whatever its outcome."""
    extras: int
    """Runs requested with run_now."""
    states: dict[str, int]
    """Times by state, without extras."""
    lateness: Percentiles

    @property
    def share(self) -> float | None:
        """Ratio of fired to expected, at most 1; None if nothing was expected."""
        return min(1.0, self.fired / self.expected) if self.expected else None


def measure(life: Sequence[Stretch], summary: LedgerSummary, to_ms: int, now_ms: int) -> Coverage:
    """Compare the ledger with the times of the rule, up to the present."""
    to_ms = min(to_ms, now_ms + 1)
    since_ms = max(summary.from_ms, life[0].from_ms) if life else summary.from_ms
    counts = _counts(life, summary, to_ms)
    extras = sum(each.times for each in summary.counts if each.reason == RUN_NOW)
    return Coverage(
        from_at=from_ms(min(since_ms, to_ms)),
        to_at=from_ms(to_ms),
        expected=_expected(life, summary, to_ms),
        paused=_times(life, ("paused",), summary.from_ms, to_ms),
        fired=sum(counts[state] for state in _FIRED),
        extras=extras,
        states={state.value: counts[state] for state in sorted(counts) if counts[state]},
        lateness=percentiles([each.late_ms for each in summary.lateness]),
    )


def shares_of(counts: Iterable[OutcomeCount]) -> dict[str, float]:
    """Return by flow the share of decided times that ran; omit flows with nothing decided.

    Decided are times that ran, whatever their outcome, and times that were missed, skipped, denied
    or quarantined. Future and withdrawn times and times during a pause do not count.
    """
    ran: Counter[str] = Counter()
    due: Counter[str] = Counter()
    for flow, outcome, times in counts:
        ran[flow] += times * (outcome in _FIRED)
        due[flow] += times * (outcome in _DUE)
    return {flow: ran[flow] / times for flow, times in sorted(due.items()) if times}


def percentiles(late_ms: Sequence[int]) -> Percentiles:
    """Return nearest-rank percentiles; an early start counts as on time."""
    if not late_ms:
        return Percentiles(0)
    ordered = sorted(max(0, each) for each in late_ms)

    def rank(share: float) -> int:
        return ordered[ceil(share * len(ordered)) - 1]

    return Percentiles(len(ordered), rank(0.5), rank(0.95), rank(0.99), ordered[-1])


def _expected(life: Sequence[Stretch], summary: LedgerSummary, to_ms: int) -> int:
    """Return the number of times while the schedule was active, including its last ones.

    The last times are planned ahead, so the schedule is already finished when they come. With a
    run limit the rule has further times, so the number of last ones is taken from the ledger.
    """
    expected = _times(life, ("active", "quarantined"), summary.from_ms, to_ms)
    after_its_end = _times(life, ("finished",), summary.from_ms, to_ms)
    if not after_its_end:
        return expected
    counts = _counts(life, summary, to_ms, less=(RUN_NOW, PAUSED))
    known = counts.total() - counts[OccurrenceState.WITHDRAWN]
    return expected + min(after_its_end, max(0, known - expected))


def _counts(
    life: Sequence[Stretch],
    summary: LedgerSummary,
    to_ms: int,
    less: Sequence[str] = (RUN_NOW,),
) -> Counter[OccurrenceState]:
    counts: Counter[OccurrenceState] = Counter()
    for state, reason, times in summary.counts:
        if reason not in less:
            counts[state] += times
    for edge in summary.edges:
        if edge.reason not in less:
            counts[edge.state] += _inside(life, edge, summary.from_ms, to_ms)
    return counts


def _inside(life: Sequence[Stretch], edge: Occurrence, from_ms: int, to_ms: int) -> int:
    """Count the times of a range row that lie in the window, by the rules in force then."""
    first, last = max(edge.nominal_ms, from_ms), min(edge.until_ms + 1, to_ms)
    return _times(life, ("active", "quarantined", "paused", "finished"), first, last)


def _times(life: Sequence[Stretch], states: Sequence[str], from_ms: int, to_ms: int) -> int:
    found = 0
    for each in life:
        # The times of an external schedule are expected by an outside scheduler, not here.
        if each.state in states and each.trigger is not None and not each.is_external:
            begin, end = max(from_ms, each.from_ms + 1), min(to_ms, each.to_ms + 1)
            found += count_times(each.trigger, begin, end)
    return found
