"""The generated parts of each page, and how they are inserted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import commands, errors, figures, metrics, operations, schema, settings, states

Maker = Callable[[], str]
MARK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

PAGES: Mapping[str, Mapping[str, Maker]] = {
    "README.md": {"peers": figures.peers, "growth": figures.growth},
    "docs/operating/sizing.md": {
        "claims": figures.claims,
        "growth": figures.growth,
        "jobs": figures.jobs,
        "posts": figures.posts,
        "machine": figures.machine,
    },
    "docs/reference/cli.md": {"commands": commands.every_command},
    "docs/reference/errors.md": {
        "tree": errors.tree,
        "classes": errors.classes,
        "words": errors.words,
    },
    "docs/reference/http.md": {"operations": operations.summary, "bodies": operations.bodies},
    "docs/reference/metrics.md": {"metrics": metrics.every_metric},
    "docs/reference/schema.md": {
        "migrations": schema.migrations,
        "tables": schema.every_table,
    },
    "docs/reference/settings.md": {
        "environment": settings.environment,
        "options": settings.options,
    },
    "docs/reference/states.md": {
        "ledger": states.ledger,
        "follows": states.follows,
        "jobs": states.jobs,
    },
}


def fill(page: str, text: str) -> str:
    """Return the page with all marks filled. Refuse unknown, missing and duplicate marks."""
    makers = PAGES[page]
    if sorted(marks(text)) != sorted(makers):
        raise ValueError(f"{page} has the marks {marks(text)}, expected {list(makers)}")
    return MARK.sub(lambda found: f"{found[1]}\n{makers[found[2]]().strip()}\n\n{found[4]}", text)


def marks(text: str) -> list[str]:
    """Return the names of the marks of a page, in order."""
    return [name for _, name, _, _ in MARK.findall(text)]


def stale(root: Path) -> list[str]:
    """Return the pages whose generated parts are out of date."""
    return [page for page in PAGES if (text := (root / page).read_text()) != fill(page, text)]
