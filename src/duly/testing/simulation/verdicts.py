"""The result of a simulation: violations, counts, and the command to replay it."""

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
    """The result of one seed."""

    seed: int
    digest: str
    """Hash of the trace; equal for equal seeds."""
    violations: tuple[Violation, ...]
    occurrences: int
    """Ledger rows; a range of times counts as one."""
    starts: int
    """Handlers started."""
    verbs: int
    """Store verbs that may change something."""
    left_behind: int
    """Times without a row because the schedule was deleted before they were planned."""
    faults: Counter[str] = field(default_factory=Counter)
    trace: tuple[str, ...] = ()
    """The part of the trace about the first violation."""

    @property
    def is_good(self) -> bool:
        """True if nothing was violated."""
        return not self.violations

    def told(self) -> str:
        """Return a report: the violations, the trace, and the command to replay it."""
        lines = [f"seed {self.seed}: {len(self.violations)} violations, trace {self.digest}"]
        lines += [f"  {each.promise}: {each.about} {each.how}" for each in self._short_list()]
        lines += [f"    {line}" for line in self.trace]
        lines.append(f"replay: make sim SEEDS=1 ARGS='--first {self.seed}'")
        return "\n".join(lines)

    def _short_list(self) -> tuple[Violation, ...]:
        return self.violations[:_TOLD_MAX]


def simulate(seed: int, make_store: MakeStore = make_watched) -> Verdict:
    """Run the simulation of a seed and check it; equal seeds give equal verdicts."""
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
    """Return the trace lines about one schedule or job, around the time named, if any."""
    tag = short(violation.about)
    lines = [line for line in record.lines if tag in line]
    named = next((word for word in violation.how.split() if word.isdigit() and len(word) > 9), None)
    if named is not None:
        near = next((i for i, line in enumerate(lines) if line.split()[0] >= named), len(lines))
        lines = lines[max(0, near - _TRACE_LINES // 2) :]
    return tuple(lines[:_TRACE_LINES])
