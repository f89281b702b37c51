"""Tests of the plan parser: it finds table scans and counts the rows that were read."""

import pytest

from tests.plans.explained import examined, scans

WHOLE = """Sort  (cost=1..2 rows=9) (actual time=1..2 rows=50.00 loops=1)
  ->  Seq Scan on duly_occurrences  (cost=0..9 rows=9) (actual time=0..9 rows=40000.00 loops=1)"""
IN_VAIN = """Limit  (cost=0..1 rows=1) (actual time=0..1 rows=0.00 loops=1)
  ->  Index Scan using duly_jobs_pkey on duly_jobs  (cost=0..9) (actual time=0..9 rows=2.00 loops=3)
        Rows Removed by Filter: 9000"""


@pytest.mark.planted("plans")
@pytest.mark.parametrize(
    ("plan", "tables", "rows"),
    [
        (WHOLE, ["duly_occurrences"], 40_000),
        (IN_VAIN, [], 27_000),
        ("SCAN duly_jobs\nUSE TEMP B-TREE FOR ORDER BY", ["duly_jobs"], 0),
        ("SELECT 1 FROM duly_jobs j\nSCAN j", ["j"], 0),
        ("SELECT 1 FROM (SELECT 1) j\nSCAN j", [], 0),
        ("SCAN duly_jobs USING INDEX duly_jobs_line\nSEARCH o USING PRIMARY KEY (id=?)", [], 0),
    ],
)
def test_plans_are_read(plan: str, tables: list[str], rows: int) -> None:
    assert scans(plan) == tables
    assert examined(plan) == rows
    assert scans(plan, *tables) == []


def test_rows_are_counted_per_table() -> None:
    plan = IN_VAIN.replace("Rows Removed by Filter: 9000", "")
    assert examined(plan, "duly_jobs") == 6
    assert examined(plan, "duly_queues") == 0
