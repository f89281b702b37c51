"""`duly health` and `duly doctor`: report problems and their remedies."""

from __future__ import annotations

import click

from duly.cli.failures import REFUSED
from duly.cli.output import print_json, print_table, say
from duly.cli.target import Target, on_database
from duly.clock import SystemClock
from duly.model.index import ReconcileReport
from duly.operate.admin import Admin
from duly.operate.health import Finding, Health
from duly.triggers.durations import duration_text

CLOCKS_MS = 2_000
"""Allowed difference of host and database clocks; leases and due times use the database's."""
_COLUMNS = {
    "": lambda finding: finding.level,
    "what": lambda finding: finding.name,
    "found": lambda finding: finding.text,
}


@click.command()
@on_database
def health(target: Target) -> None:
    """Report what is wrong; the exit code is 1 if anything is bad.

    \b
    Examples:
      duly health
      duly health --json
    """

    async def look(admin: Admin) -> Health:
        return await admin.health()

    _print(target, target.ask(look))


@click.command()
@click.option("--repair", is_flag=True, help="Rebuild the index from documents and ledger.")
@on_database
def doctor(target: Target, repair: bool) -> None:
    """Check schema, clocks and the whole index; with --repair, rebuild the index.

    Rebuilding is safe while planners and workers run, and reports what differed.

    \b
    Examples:
      duly doctor
      duly doctor --repair
    """

    async def look(admin: Admin) -> tuple[Health, ReconcileReport | None]:
        report = await admin.repair() if repair else None
        found = await admin.health(index=await admin.monitoring.whole_index_health())
        clocks = _clocks(await admin.clock_ms())
        schema = Finding("schema", "ok", "this release can work on the database")
        return Health((schema, clocks, *found.findings)), report

    found, report = target.ask(look)
    if report is not None and not target.as_json:
        say(
            f"index rebuilt: {report.checked} schedules checked, {report.added} rows added, "
            f"{report.removed} removed, {report.corrected} corrected"
        )
    _print(target, found, report)


def _clocks(database_ms: int) -> Finding:
    apart_ms = abs(int(SystemClock().now().timestamp() * 1000) - database_ms)
    text = f"host and database differ by {duration_text(apart_ms)}"
    return Finding("clocks", "ok" if apart_ms <= CLOCKS_MS else "warning", text)


def _print(target: Target, found: Health, report: ReconcileReport | None = None) -> None:
    if target.as_json:
        shown: dict[str, object] = {"level": found.level, "findings": found.findings}
        print_json(shown if report is None else {**shown, "repaired": report})
    else:
        print_table(found.findings, _COLUMNS, "")
    if found.level == "bad":
        raise SystemExit(REFUSED)
