"""`duly demo`: the command, which runs the sample application and a tour of the parts."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

from duly.cli.demo.index import show_index
from duly.cli.demo.jobs import show_jobs
from duly.cli.explain import show
from duly.cli.failures import explain_failures
from duly.errors import InvalidTrigger
from duly.triggers import Trigger, cron, every, next_after_many, once, parse_trigger, weekly

SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 23, 12, tzinfo=UTC)


@click.command()
@click.option("--once", is_flag=True, help="Take the tour, run a little of everything, and exit.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8787,
    show_default=True,
    help="Port of the dashboard; 0: a free one.",
)
@explain_failures
def demo(once: bool, port: int) -> None:
    """Run a sample application with planner, worker, API and dashboard on a SQLite file.

    It opens no browser and leaves no files: it prints the dashboard's address and a sign-in link,
    shows the jobs as they run, and stops at Ctrl-C. Without a terminal it behaves as with --once.

    \b
    Examples:
      duly demo
      duly demo --once | less
    """
    # Imported late: server and HTTP client are slow to import, and other commands do not need them.
    from duly.cli.demo.live import run_product

    logging.getLogger("duly").addHandler(logging.NullHandler())
    console = Console(highlight=False)
    is_bounded = once or not console.is_terminal
    if is_bounded:
        _tour(console)
        console.print(Rule("[bold]The whole product, for a moment", align="left", style="dim"))
    run_product(console, 0 if is_bounded else port, is_bounded=is_bounded)


def _tour(console: Console) -> None:
    for title, step in (
        ("Rules people write", _rules),
        ("When clocks change", _clock_changes),
        ("One rule, many schedules", _binding),
        ("Mistakes are named", _mistakes),
        ("A hundred thousand rows at once", _bulk),
        ("Users' schedules on a SQLite file", show_index),
        ("Jobs, and a worker that runs them", show_jobs),
    ):
        console.print(Rule(f"[bold]{title}", align="left", style="dim"))
        step(console)
        console.print()
    console.print('Try your own: [bold]duly explain "0 9 * * MON" --tz Europe/Berlin[/bold]\n')


def _tell(console: Console, code: str, trigger: Trigger, after: datetime, n: int = 3) -> None:
    console.print(f"[cyan]{escape(code)}[/cyan]")
    show(trigger.explain(n, after))


def _rules(console: Console) -> None:
    for code, trigger in (
        (
            'cron("0 9 * * MON-FRI", tz="Europe/Berlin")',
            cron("0 9 * * MON-FRI", tz="Europe/Berlin"),
        ),
        ('cron("0 18 LW * *", tz="Asia/Tokyo")', cron("0 18 LW * *", tz="Asia/Tokyo")),
        (
            'weekly({"mon": "09:00", "thu": ["09:00", "17:30"]}, tz="America/Sao_Paulo")',
            weekly({"mon": "09:00", "thu": ["09:00", "17:30"]}, tz="America/Sao_Paulo"),
        ),
        ("every(minutes=90, start_at=…)", every(minutes=90, start_at=SPRING)),
        ("once(…)", once(datetime(2026, 12, 24, 18, tzinfo=UTC))),
    ):
        _tell(console, code, trigger, SPRING)


def _clock_changes(console: Console) -> None:
    zone = "Europe/Berlin"
    nightly = "30 2 * * *"
    for options, trigger, after in (
        ("", cron(nightly, tz=zone), SPRING),
        (', gap="skip"', cron(nightly, tz=zone, gap="skip"), SPRING),
        ("", cron(nightly, tz=zone), AUTUMN),
        (', fold="both"', cron(nightly, tz=zone, fold="both"), AUTUMN),
    ):
        _tell(console, f'cron("{nightly}", tz="{zone}"{options})', trigger, after)


def _binding(console: Console) -> None:
    spread = cron("H 2 * * *", tz="Europe/Berlin")
    console.print('[cyan]cron("H 2 * * *")[/cyan]: H is a minute of its own for each schedule')
    for key in ("user:ada/digest", "user:bob/digest", "user:eve/digest"):
        first = spread.bind(key, SPRING).explain(1, SPRING).times[0]
        console.print(f"  {key:18} {first}")


def _mistakes(console: Console) -> None:
    for wrong in (
        "61 * * * *",
        "0 0 31 2 *",
        "*/10 * * * * *",
        {"kind": "cron", "expression": "0 9 * * *", "tz": "Europe/Berlim"},
        {"kind": "weekly", "days": {"mon": "9:00"}},
    ):
        try:
            parse_trigger(wrong)
        except InvalidTrigger as error:
            for line in (error.caret() or str(wrong)).splitlines():
                console.print(f"  {escape(line)}", soft_wrap=True)
            console.print(f"  [red]{escape(str(error))}[/red]", soft_wrap=True)


def _bulk(console: Console) -> None:
    rules = [cron(f"{m} {h} * * *", tz="Europe/Berlin") for h in range(24) for m in (0, 15, 30, 45)]
    rows = [rules[i % len(rules)] for i in range(100_000)]
    start = int(SPRING.timestamp() * 1000)
    answers = next_after_many(rows, [start + i % 60_000 for i in range(100_000)])
    found = sum(answer is not None for answer in answers)
    console.print(f"  next_after_many: {found:,} next times of {len(rules)} distinct rules")
