"""Parse documents into fenced blocks, and console blocks into commands.

A comment before a block, which readers do not see, can be `<!-- not run: reason -->`, or
`<!-- file: name -->` when the block is the content of a file that later blocks use.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

FENCE = re.compile(r"^( *)(```+)\s*(\S*)\s*$")
NOT_RUN = re.compile(r"<!-- not run:(.*)-->")
FILE = re.compile(r"<!-- file: (\S+) -->")
PYTHON_LANGUAGES = {"py", "pycon", "python", "python3"}
SHELL_LANGUAGES = {"", "bash", "console", "sh", "shell"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: language, code, the line its code starts at, and what the comment says."""

    language: str
    code: str
    line: int
    not_run: str | None = None
    file: str | None = None
    before: str = ""
    """The last line of prose before it."""

    @property
    def is_output(self) -> bool:
        """Return whether the block shows the output of the block before it."""
        return self.language == "text" and self.before == "prints"


@dataclass(frozen=True, slots=True)
class Command:
    """A `$ …` command of a console block with the output and exit status shown for it."""

    text: str
    line: int
    expected: str = ""
    status: int = 0


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks in order. An unclosed fence fails the test."""
    opened: re.Match[str] | None = None
    start, lines, before = 0, list[str](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if opened is None and match:
            opened, start, lines = match, number + 1, []
        elif opened and match and not match[3] and match[2].startswith(opened[2]):
            file = FILE.search(before)
            yield Block(
                opened[3],
                "\n".join(lines) + "\n",
                start,
                not_run=_reason(before, start),
                file=file[1] if file else None,
                before=before.strip(),
            )
            opened, before = None, ""
        elif opened:
            lines.append(line.removeprefix(opened[1]))
        elif line.strip():
            before = line
    if opened:
        pytest.fail(f"line {start - 1}: this fence is never closed")


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    lines = list(enumerate(block.code.splitlines(), start=block.line))
    while lines:
        number, line = lines.pop(0)
        if line.startswith("$ "):
            while line.endswith("\\") and lines:
                line = line[:-1] + lines.pop(0)[1].removeprefix("> ").lstrip()
            found.append(Command(line.removeprefix("$ "), number))
        elif not found:
            pytest.fail(f"line {number}: output before any command")
        else:
            found[-1] = replace(found[-1], expected=f"{found[-1].expected}{line}\n")
    return list(_with_statuses(found))


def _reason(comment: str, line: int) -> str | None:
    match = NOT_RUN.search(comment)
    if match and not match[1].strip():
        pytest.fail(f"line {line}: 'not run' needs a reason")
    return match[1].strip() if match else None


def _with_statuses(found: list[Command]) -> Iterator[Command]:
    for index, command in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        if command.text == "echo $?":
            continue
        if following and following.text == "echo $?":
            yield replace(command, status=int(following.expected))
        else:
            yield command
