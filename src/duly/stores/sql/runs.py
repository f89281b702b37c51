"""The count of runs on the documents of schedules that have a limit.

Whoever charges a schedule that has an index row holds that row, so nobody else waits for its
document meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from duly.runs import count_of
from duly.schedules import ScheduleId
from duly.stores.checks import SCHEDULES
from duly.stores.sql import ledger
from duly.stores.sql.bulk import chunks, update_all
from duly.stores.sql.db import Db, tuples


class Charge(NamedTuple):
    """Runs that were handed over, and what the index row said was left before."""

    runs: int
    row_left: int


class _Limit(msgspec.Struct, gc=False):
    """The part of a definition that charging needs."""

    max_runs: int | None = None


_LIMIT = msgspec.json.Decoder(_Limit)


def limited(body: str) -> bool:
    """Return whether a stored definition has a limit on its runs."""
    return '"max_runs"' in body and _LIMIT.decode(body).max_runs is not None


def charge(db: Db, charges: Mapping[ScheduleId, Charge]) -> None:
    """Count runs on documents; rows that have none (definitions kept elsewhere) count alone."""
    charges = {each: one for each, one in charges.items() if one.runs}
    counts = []
    for ids in chunks(sorted(charges)):
        found = db.run(
            "SELECT id, body, runs_had FROM {p}resources WHERE id IN :ids "
            "AND collection = :schedules ORDER BY id {lock}",
            ids=list(ids),
            schedules=SCHEDULES,
        )
        for schedule_id, body, had in tuples(found):
            most, one = _LIMIT.decode(body).max_runs, charges[schedule_id]
            if most is not None:
                before = count_of(most, had, one.row_left)
                counts.append({"id": schedule_id, "runs_had": before + one.runs})
    write_counts(db, counts)


def write_counts(db: Db, counts: Sequence[Mapping[str, object]]) -> None:
    """Store counts: `id` and `runs_had` of each."""
    update_all(db, db.tables.resources, "id", [dict(each) for each in counts])


def count_ledger(db: Db, schedule_ids: Sequence[str]) -> dict[str, int]:
    """Runs that the ledger has, for schedules stored by a release that did not count them."""
    return {each: found[0] for each, found in ledger.runs(db, schedule_ids).items()}
