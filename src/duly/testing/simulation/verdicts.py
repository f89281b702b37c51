"""What a simulation came to: what did not hold, how much happened, and the way to see it again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from duly.testing.simulation.checks.checks import violations
from duly.testing.simulation.checks.times import left_behind
from duly.testing.simulation.record import Record, Violation, short
from duly.testing.simulation.world import MakeStore, make_watched, run

_TRACE_LINES = 40
_TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """One seed, judged."""

    seed: int
    digest: str
    """Of the trace: the same seed gives the same."""
    violations: tuple[Violation, ...]
    occurrences: int
    """Rows of the ledger, runs of times as one."""
    starts: int
    """Handlers that began."""
    verbs: int
    """Steps that may change something."""
    left_behind: int
    """Times that a deletion found unplanned; they have no row."""
    faults: Counter[str] = field(default_factory=Counter)
    trace: tuple[str, ...] = ()
    """The end of what is known about the first thing that did not hold."""

    @property
    def is_good(self) -> bool:
        """Whether everything held."""
        return not self.violations

    def told(self) -> str:
        """For people: what did not hold, the trace, and how to replay it."""
        lines = [f"seed {self.seed}: {len(self.violations)} violations, trace {self.digest}"]
        lines += [f"  {each.promise}: {each.about} {each.how}" for each in self._few()]
        lines += [f"    {line}" for line in self.trace]
        lines.append(f"replay: make sim SEEDS=1 ARGS='--first {self.seed}'")
        return "\n".join(lines)

    def _few(self) -> tuple[Violation, ...]:
        return self.violations[:_TOLD_MAX]


def simulate(seed: int, make_store: MakeStore = make_watched) -> Verdict:
    """Run the simulation of a seed and judge it; the same seed, the same verdict."""
    record = run(seed, make_store).record
    found = tuple(violations(record))
    return Verdict(
        seed=seed,
        digest=record.digest(),
        violations=found,
        occurrences=len(record.last_rows()),
        starts=len(record.starts),
        verbs=record.steps,
        left_behind=left_behind(record),
        faults=record.faults,
        trace=_trace(record, found[0]) if found else (),
    )


def _trace(record: Record, violation: Violation) -> tuple[str, ...]:
    """The lines about one schedule or job, around the time that is named, if one is."""
    tag = short(violation.about)
    lines = [line for line in record.lines if tag in line]
    named = next((word for word in violation.how.split() if word.isdigit() and len(word) > 9), None)
    if named is not None:
        near = next((i for i, line in enumerate(lines) if line.split()[0] >= named), len(lines))
        lines = lines[max(0, near - _TRACE_LINES // 2) :]
    return tuple(lines[:_TRACE_LINES])
