"""Generate the tables of errors: the classes that Duly raises, and the codes of HTTP answers.

The codes are found in the source, because each answer is created by a call with status and code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path

from duly import errors
from duly.cli.failures import exit_code
from duly.errors import DulyError
from tools.reference import markdown
from tools.reference.markdown import code, table

_MAKERS = {"problem", "refusal"}
_FOLDERS = ("web", "dispatch")
# Modules outside errors.py that define errors; they must be imported so that the errors are found.
_RAISERS = ("duly.runtime",)


def tree() -> str:
    """Return the tree of errors from the docstring of `duly.errors`."""
    drawing = (errors.__doc__ or "").partition("\n\n")[2]
    return f"```text\n{drawing.strip()}\n```"


def classes() -> str:
    """Return the table of classes with their public modules and the exit codes of commands."""
    rows = [
        (code(kind.__name__), code(_home(kind)), str(_exit_of(kind)), (kind.__doc__ or "").strip())
        for kind in every_class()
    ]
    return table(("error", "import from", "exit code", "raised when"), rows)


def words() -> str:
    """Return the table of the error codes of HTTP answers with their statuses."""
    found: dict[str, set[int]] = {}
    for status, word in every_word():
        found.setdefault(word, set()).add(status)
    rows = [(code(word), markdown.words(sorted(found[word]))) for word in sorted(found)]
    return table(("`error`", "status"), rows)


def every_class() -> list[type[DulyError]]:
    """Return the root class and all its subclasses, in the order of the tree."""
    for module in _RAISERS:
        import_module(module)

    def below(kind: type[DulyError]) -> Iterator[type[DulyError]]:
        yield kind
        for each in kind.__subclasses__():
            # Errors that only tests raise are not part of the reference.
            is_ours = each.__module__.startswith("duly.")
            if is_ours and not each.__module__.startswith("duly.testing"):
                yield from below(each)

    return list(below(DulyError))


def every_word() -> Iterator[tuple[int, str]]:
    """Yield (status, code) of each call that creates an error answer."""
    for folder in _FOLDERS:
        for file in sorted(Path(str(resources.files("duly") / folder)).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    match call.args:
        case [ast.Constant(value=int(status)), ast.Constant(value=str(word)), *_]:
            if name in _MAKERS:
                yield status, word
        case [ast.Constant(value=int(status)), ast.Dict(keys=keys, values=values), *_]:
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "error":
                    assert isinstance(value, ast.Constant)
                    yield status, str(value.value)
        case _:
            pass


def _home(kind: type[DulyError]) -> str:
    root = import_module("duly")
    return "duly" if kind.__name__ in root.__all__ else kind.__module__


def _exit_of(kind: type[DulyError]) -> int:
    """Return the exit code of a class, without calling its constructor."""
    return exit_code(kind.__new__(kind))
