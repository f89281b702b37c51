"""Loading of an application by `module:name`.

If the import raises, the traceback is shown from the module's own frames on.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from types import ModuleType, TracebackType

import click

from duly.app import Duly
from duly.cli.failures import REFUSED, exit_code
from duly.cli.output import say
from duly.errors import DulyError


def find_app(where: str) -> Duly:
    """Return the Duly object named by `module:name`; refuse anything else."""
    module_name, _, name = where.partition(":")
    if not module_name or not name:
        raise click.UsageError(f"{where!r}; write it as module:name, as in reminders:app")
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise click.UsageError(f"{module_name!r} is a file; name the module: {dotted}:{name}")
    module = _imported(module_name)
    app = getattr(module, name, None)
    if not isinstance(app, Duly):
        others = [each for each, value in vars(module).items() if isinstance(value, Duly)]
        remedy = f"try {module_name}:{others[0]}" if others else "the module has none"
        raise click.UsageError(f"{name!r} in {module_name} is not a Duly object; {remedy}")
    return app


def _imported(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise click.UsageError(f"there is no module {name!r} here or installed") from None
        lines = traceback.format_exception(error.with_traceback(_own(error.__traceback__)))
        say("".join(lines).rstrip(), err=True)
        say(f"error: module {name!r} cannot be imported", fg="red", err=True)
        raise SystemExit(exit_code(error) if isinstance(error, DulyError) else REFUSED) from None


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of the import machinery."""
    while trace is not None and _is_importing(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_importing(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")
