"""Compares triggers with their peers: the cost of a single answer and of one in bulk.

Prints tables, writes triggers.json and triggers.png, and ends with one line per bar; exit status 1
means that a bar is not met. Ratios compare minima, which other load affects least.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# `python benchmarks/triggers.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.options import parse
from benchmarks.report import Bar, Chart, machine_facts, table, today, write_results
from benchmarks.rounds import Timing
from benchmarks.trigger_bulk import IN_ORDER, KEPT, Bulk, BulkSize, measure_bulk
from benchmarks.trigger_rows import RULES, WINDOW_MS, ZONES
from benchmarks.trigger_single import (
    CRONITER,
    CRONSIM,
    NAMES,
    OURS,
    TZ,
    Disagreement,
    Single,
    measure_single,
    random_instants,
)

EXPRESSIONS = {
    "*/5 * * * *": "every-five-minutes",
    "0 9 * * MON": "monday-at-nine",
    "0 0 29 2 *": "leap-day",
    "30 2 * * *": "half-past-two",
    "0 0 L * *": "last-of-month",
}
AT_LEAST = {CRONITER: 40, CRONSIM: 10}
BULK_AT_LEAST = 300
SEED = 2026


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: random instants, batch size, rounds and rows."""

    instants: int
    batch: int
    rounds: int
    bulk: BulkSize


FULL = Size(1_000, 250, 60, BulkSize(rows=100_000, checked=5_000, sampled=2_000, rounds=30))
QUICK = Size(40, 20, 2, BulkSize(rows=2_000, checked=200, sampled=40, rounds=2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("triggers", __doc__, arguments)
    size = QUICK if options.quick else FULL
    facts = machine_facts("apscheduler", "croniter", "cronsim")
    try:
        singles, bulk = _measure(size)
    except Disagreement as error:
        print(f"benchmark: stopped, nothing was measured: {error}", file=sys.stderr)
        return 1
    bars = _bars(singles, bulk)
    print("\n\n".join([_facts_text(facts), _single_text(singles, size), _bulk_text(bulk, size)]))
    write_results(options, "triggers", _results(size, facts, singles, bulk, bars))
    _chart(singles, bulk).write_png(options.out / "triggers.png")
    print("", *bars, sep="\n")
    return 0 if all(bar.is_met for bar in bars) else 1


def _measure(size: Size) -> tuple[list[Single], Bulk]:
    instants = random_instants(size.instants, SEED)
    singles = []
    for expression in EXPRESSIONS:
        print(f"benchmark: {expression}", file=sys.stderr)
        singles.append(measure_single(expression, instants, size.batch, size.rounds))
    print(f"benchmark: {size.bulk.rows:,} rows in bulk", file=sys.stderr)
    return singles, measure_bulk(size.bulk, size.batch, SEED)


def _bars(singles: Sequence[Single], bulk: Bulk) -> list[Bar]:
    return [
        *(
            Bar(f"{EXPRESSIONS[single.expression]}-vs-{peer}", single.ratio(peer), limit)
            for peer, limit in AT_LEAST.items()
            for single in singles
        ),
        Bar("bulk-vs-croniter-per-row", bulk.ratio(), BULK_AT_LEAST),
    ]


def _facts_text(facts: dict[str, str]) -> str:
    return "\n".join([f"date         {today()}", *(f"{k:<12} {v}" for k, v in facts.items())])


def _cell(timing: Timing | None) -> str:
    return "n/a" if timing is None else f"{timing.minimum_us:.2f} ({timing.median_us:.2f})"


def _single_text(singles: Sequence[Single], size: Size) -> str:
    heading = ["expression", *NAMES, "× croniter", "× cronsim"]
    times = [
        [
            single.expression,
            *(_cell(single.timings.get(name)) for name in NAMES),
            f"{single.ratio(CRONITER):.1f}",
            f"{single.ratio(CRONSIM):.1f}",
        ]
        for single in singles
    ]
    differences = [
        [
            single.expression,
            *(
                f"{found.elsewhere} + {found.near_change}" if found else "n/a"
                for found in map(single.agreements.get, NAMES[1:])
            ),
        ]
        for single in singles
    ]
    title = (
        f"next_after() in {TZ.key} at {size.instants:,} random instants of 2026: µs per call,\n"
        f"minimum (median) of {size.rounds} rounds; × compares minima"
    )
    footing = "Answers that differ from ours: away from clock changes + within a day of one"
    agreement = table([["expression", *NAMES[1:]], *differences])
    return "\n\n".join([title, table([heading, *times]), footing, agreement])


def _bulk_text(bulk: Bulk, size: Size) -> str:
    title = (
        f"next_after_many() on {size.bulk.rows:,} rows due within {WINDOW_MS // 1000} s: "
        "µs per row,\n"
        f"minimum (median) of {size.bulk.rounds} rounds; {RULES} rules in {len(ZONES)} zones, "
        f"{bulk.cores:,} after H is resolved;\ncroniter on {size.bulk.sampled:,} of the rows"
    )
    rows = [[name, _cell(timing)] for name, timing in bulk.timings.items()]
    footing = (
        f"{bulk.ratio():.0f} × croniter in claim order, {bulk.ratio(KEPT):.0f} × with its rules "
        "kept compiled by the application;\n"
        f"the first run took {bulk.first_us:.2f} µs a row.\n"
        f"{size.bulk.checked:,} rows checked against next_after_ms(): no difference; "
        f"croniter's rows: {bulk.disagreements} different."
    )
    return "\n\n".join([title, table([["bulk", "µs per row"], *rows]), footing])


def _results(
    size: Size,
    facts: dict[str, str],
    singles: Sequence[Single],
    bulk: Bulk,
    bars: Sequence[Bar],
) -> dict[str, object]:
    return {
        "benchmark": "triggers",
        "date": today(),
        "machine": facts,
        "size": asdict(size),
        "expressions": [asdict(single) for single in singles],
        "bulk": asdict(bulk),
        "bars": [bar.to_json() for bar in bars],
    }


def _chart(singles: Sequence[Single], bulk: Bulk) -> Chart:
    groups: dict[str, dict[str, float | None]] = {
        single.expression: {
            name: single.timings[name].minimum_us if name in single.timings else None
            for name in NAMES
        }
        for single in singles
    }
    groups["in bulk, per row"] = {
        OURS: bulk.timings[IN_ORDER].minimum_us,
        CRONITER: bulk.timings[CRONITER].minimum_us,
    }
    return Chart(f"Next time of a cron rule in {TZ.key}", "µs per call", NAMES, groups)


if __name__ == "__main__":
    sys.exit(main())
