"""Generate the tables of environment variables and of options in code.

Names and defaults come from the classes, meanings from the docstrings of their fields.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

import msgspec

from duly.app import Config, Duly
from duly.dispatch.options import BodyLimits, HttpOptions
from duly.dispatch.tick.options import TickOptions
from duly.flows.flow import ActionOptions
from duly.model.retries import RetryPolicy
from duly.model.schedules import Limits
from duly.model.stored_jobs import Retention
from duly.model.upkeep import LedgerRetention
from duly.runtime import KeeperOptions, PlannerOptions, WorkerOptions
from duly.settings import Settings
from duly.stores.sql.options import SqlOptions
from duly.web.operators.auth import AuthOptions
from tools.reference.markdown import code, table

OPTIONS: tuple[tuple[type, str], ...] = (
    (Config, "`Duly(url, config=...)`; each field may also be passed to `Duly()` by itself"),
    (SqlOptions, "`Config(database=...)`, `Duly(url, ...)` and `open_store(url, ...)`"),
    (WorkerOptions, "`Config(worker=...)`, `app.serve(worker=...)` and `app.running(worker=...)`"),
    (PlannerOptions, "`Config(planner=...)` and `app.serve(planner=...)`"),
    (KeeperOptions, "`Config(keeper=...)` and `app.serve(keeper=...)`"),
    (Retention, "`KeeperOptions(retention=...)`"),
    (LedgerRetention, "`KeeperOptions(ledger=...)`"),
    (ActionOptions, "`@flow.action(...)`, which takes seconds as `timeout_s`"),
    (RetryPolicy, "`@flow.action(retry=...)`, `enqueue(retry=...)`"),
    (Limits, "`Flow(limits=...)`: what one owner may ask for"),
    (HttpOptions, "`Config(http=...)` and `Duly(http=...)`"),
    (BodyLimits, "`HttpOptions(limits=...)`"),
    (TickOptions, "`HttpOptions(tick=...)`"),
    (AuthOptions, "`OperatorAuth(...)`, for the dashboard"),
)


def environment() -> str:
    """Return the table of environment variables."""
    source = inspect.getsource(Settings.from_environment)
    by_field = dict(_variables(source))
    rows = []
    for name, default, about in fields(Settings):
        meaning = re.sub(r"^DULY_\w+: ", "", about)
        meaning = meaning[:1].upper() + meaning[1:]
        rows.append((code(by_field[name]), default, meaning))
    return table(("variable", "default", "meaning"), rows)


def options() -> str:
    """Return a section for each class of options, starting with the application."""
    parts = [f"### Duly\n\n{_of_application()}"]
    for kind, where in OPTIONS:
        rows = [(code(name), default, about) for name, default, about in fields(kind)]
        heading = f"### {kind.__name__}\n\nFor {where}.\n\n"
        parts.append(heading + table(("option", "default", "meaning"), rows))
    return "\n\n".join(parts)


def fields(kind: type) -> list[tuple[str, str, str]]:
    """Return the name, default and meaning of each field, in order."""
    documented = _texts(kind)
    return [(name, _default(kind, name), documented.get(name, "")) for name in _names(kind)]


def _of_application() -> str:
    rows = []
    about = {
        "url": "`memory:`, `sqlite:///file.db` or `postgresql://user@host/database`",
        "flows": "the application's code",
        "config": "a `Config`",
        "options": "fields of `Config` and of its `database`, as keywords",
    }
    for name, parameter in list(inspect.signature(Duly).parameters.items()):
        default = "" if parameter.default is parameter.empty else _shown(parameter.default)
        rows.append((code(name), default, about[name]))
    return table(("parameter", "default", "meaning"), rows)


def _variables(source: str) -> list[tuple[str, str]]:
    """Return (field, variable) pairs; the field follows from the name of the variable."""
    return [
        (found.lower().removeprefix("duly_"), found) for found in re.findall(r"DULY_\w+", source)
    ]


def _names(kind: type) -> list[str]:
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    return list(getattr(kind, "__dataclass_fields__"))  # noqa: B009


def _texts(kind: type) -> dict[str, str]:
    """Return the docstring of each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found, last = dict[str, str](), ""
    for statement in body.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                last = name
            case ast.Expr(value=ast.Constant(value=str(text))) if last:
                found[last] = " ".join(text.split())
            case _:
                last = ""
    return found


def _default(kind: type, name: str) -> str:
    """Return the default of a field as Markdown."""
    if kind is AuthOptions and name == "secret":
        return "chance"
    return _shown(getattr(kind(), name))


def _shown(value: Any) -> str:
    if value is None or value in ((), "", frozenset()):
        return "none"
    if isinstance(value, bool | str):
        return code(value)
    if isinstance(value, int | float):
        return f"{value:,}" if value != int(value) else f"{int(value):,}"
    if isinstance(value, tuple):
        return ", ".join(_shown(each) for each in value)
    return code(f"{type(value).__name__}()")
