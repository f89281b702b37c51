"""The result of a check, and functions to read Python source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Complaint:
    """A violation, printed as `path:line: what is wrong, and what to do`."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class File:
    """A file of the repository: its path from the root, and its text."""

    path: PurePosixPath
    text: str

    def complain(self, line: int, message: str) -> Complaint:
        return Complaint(str(self.path), line, message)

    def numbered(self) -> Iterator[tuple[int, str]]:
        return enumerate(self.text.splitlines(), start=1)

    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    def is_under(self, folder: str) -> bool:
        return self.path.is_relative_to(folder)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Map each local name to the dotted name it was imported from."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of an expression such as `dt.datetime.now`, or "" if it has none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""
