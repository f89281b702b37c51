"""The documents as a test: their Python runs, and their commands print what they show.

A block preceded by `<!-- not run: reason -->` is reported as a skip with that reason. In a
console block, lines after a command are its output; `...` stands for any text, and the lines
`$ echo $?` and a number state an exit status other than 0.
"""

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FENCE = re.compile(r"^( *)(```+)\s*(\S*)\s*$")
NOT_RUN = re.compile(r"<!-- not run:(.*)-->")
PYTHON_LANGUAGES = {"py", "pycon", "python", "python3"}
RUN = ("duly ", "python -c ")
# Commands a reader runs that are checked elsewhere, or change the machine.
LEFT_ALONE = ("apt-get ", "cd ", "git ", "make", "pip install ", "source ")
COMMAND_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: language, code, the line its code starts at, and why it is not run."""

    language: str
    code: str
    line: int
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One `$ …` of a console block with the output and exit status that the document shows."""

    text: str
    line: int
    expected: str = ""
    status: int = 0


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block in order; an unclosed fence is an error of the document."""
    opened: re.Match[str] | None = None
    start, lines, comment = 0, list[str](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if opened is None and match:
            opened, start, lines = match, number + 1, []
        elif opened and match and not match[3] and match[2].startswith(opened[2]):
            yield Block(opened[3], "\n".join(lines) + "\n", start, _reason(comment, start))
            opened, comment = None, ""
        elif opened:
            lines.append(line.removeprefix(opened[1]))
        elif line.strip():
            comment = line
    if opened:
        pytest.fail(f"line {start - 1}: this fence is never closed")


def commands(block: Block) -> list[Command]:
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


def run_python(block: Block, namespace: dict[str, object], path: str) -> None:
    if ">>> " not in block.code:
        # Leading newlines make a traceback show the line of the document.
        exec(compile("\n" * (block.line - 1) + block.code, path, "exec"), namespace)  # noqa: S102
        return
    example = doctest.DocTestParser().get_doctest(block.code, namespace, path, path, block.line - 1)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=report.append, clear_globs=False)
    namespace.update(example.globs)
    assert not runner.failures, "".join(report)


def run_command(command: Command, folder: Path) -> None:
    if command.text.startswith(LEFT_ALONE):
        return
    where = f"line {command.line}: $ {command.text}"
    if not command.text.startswith(RUN):
        pytest.fail(f"{where}\nnot a command this test can run; mark its block as not run")
    done = subprocess.run(
        ["sh", "-c", command.text],  # noqa: S607
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == command.status, f"{where}\n{done.stdout}"
    if command.expected:
        matches = doctest.OutputChecker().check_output(
            _trimmed(command.expected), _trimmed(done.stdout), doctest.ELLIPSIS
        )
        assert matches, f"{where}\nexpected:\n{command.expected}\ngot:\n{done.stdout}"


def run_document(text: str, path: str, folder: Path) -> None:
    namespace: dict[str, object] = {"__name__": "documents"}
    for block in blocks(text):
        if block.not_run is not None:
            continue
        if block.language in PYTHON_LANGUAGES:
            run_python(block, namespace, path)
        elif block.language == "console":
            for command in commands(block):
                run_command(command, folder)


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


def _environment(folder: Path) -> dict[str, str]:
    """What a reader's terminal would have, and nothing of this process's own settings."""
    return {
        "COLUMNS": "100",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _blocks_not_run() -> list[tuple[str, str]]:
    return [
        (f"{_name(path)}:{block.line}", block.not_run)
        for path in DOCUMENTS
        for block in blocks(path.read_text())
        if block.not_run is not None
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_document(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_document(path.read_text(), _name(path), tmp_path)


def test_blocks_not_run_are_listed() -> None:
    listed = _blocks_not_run()
    if listed:
        reasons = "; ".join(f"{place} ({reason})" for place, reason in listed)
        pytest.skip(f"blocks of documents that are not run: {reasons}")


GOOD = """
```python
x = 20
```

Prose between.

```python
>>> x + 1
21
>>> print("from the top ... to the end")
from ... end
```

```console
$ python -c "print(1); print(2); print(3)"
1
...
3
$ python -c "import sys; print('no', file=sys.stderr); sys.exit(3)"
no
$ echo $?
3
$ make setup
anything
```

<!-- not run: needs a server -->
```python
raise SystemExit
```
"""


def test_good_sample_runs(tmp_path: Path) -> None:
    run_document(GOOD, "sample.md", tmp_path)


def test_blocks_are_found_with_their_lines() -> None:
    found = list(blocks(GOOD))
    assert [(block.language, block.line) for block in found] == [
        ("python", 3),
        ("python", 9),
        ("console", 16),
        ("python", 30),
    ]
    assert [block.not_run for block in found] == [None, None, None, "needs a server"]


def test_a_block_not_run_ends_with_its_fence() -> None:
    first, second = blocks("<!-- not run: slow -->\n\n```python\na\n```\n```python\nb\n```\n")
    assert (first.not_run, second.not_run) == ("slow", None)


def test_a_longer_fence_holds_a_shorter_one() -> None:
    (block,) = blocks("````markdown\n```python\n1 / 0\n```\n````\n")
    assert block.code == "```python\n1 / 0\n```\n"


def test_a_long_command_is_joined() -> None:
    (block,) = blocks('```console\n$ python -c \\\n  "print(1)"\n1\n```\n')
    assert commands(block) == [Command('python -c "print(1)"', 2, expected="1\n")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert 1 == 2\n```\n", AssertionError),
        ("```python\nimport duly.nothing\n```\n", ModuleNotFoundError),
        ("```python\n>>> 1 + 1\n3\n```\n", AssertionError),
        ('```console\n$ python -c "print(1)"\n2\n```\n', AssertionError),
        ('```console\n$ python -c "print(1)"\n1\n...\n2\n```\n', AssertionError),
        ('```console\n$ python -c "raise SystemExit(1)"\n```\n', AssertionError),
        ('```console\n$ python -c "pass"\n$ echo $?\n1\n```\n', AssertionError),
        ("```console\n$ curl example.org\n```\n", pytest.fail.Exception),
        ("```console\noutput\n```\n", pytest.fail.Exception),
        ("```python\nx = 1\n", pytest.fail.Exception),
        ("<!-- not run: -->\n```python\nx = 1\n```\n", pytest.fail.Exception),
    ],
)
def test_bad_samples_fail(text: str, error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error):
        run_document(text, "sample.md", tmp_path)


def test_a_failure_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_document("# Title\n\n```python\n1 / 0\n```\n", "sample.md", tmp_path)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("sample.md", 4)
