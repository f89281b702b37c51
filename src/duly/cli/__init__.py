"""The command line: one file per command group; only this package prints.

Exit codes: 0 done, 1 refused or not found, 2 invalid input (the message names the place and what
is allowed), 3 the database did not answer.
"""

import click

from duly.cli.completion import completion
from duly.cli.demo.demo import demo
from duly.cli.explain import explain
from duly.cli.health import doctor, health
from duly.cli.jobs import jobs
from duly.cli.locks import locks
from duly.cli.occurrences import occurrences
from duly.cli.operator import operator
from duly.cli.queues import queues
from duly.cli.run import planner, run, serve, worker
from duly.cli.schedule_steps import STEPS
from duly.cli.schedules import schedules
from duly.cli.schema import schema
from duly.cli.tick import tick
from duly.cli.workers import workers

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="duly", prog_name="duly")
def main() -> None:
    """Duly: a scheduler for applications with many users.

    \b
    Examples:
      duly explain "0 9 * * MON" --tz Europe/Berlin
      duly demo
      duly run --help
      duly schedules --help
    """


for _command in STEPS:
    schedules.add_command(_command)
for _command in (
    completion,
    demo,
    doctor,
    explain,
    health,
    jobs,
    locks,
    occurrences,
    operator,
    planner,
    queues,
    run,
    schedules,
    schema,
    serve,
    tick,
    worker,
    workers,
):
    main.add_command(_command)
