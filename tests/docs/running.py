"""Run documents as a reader would: write the files, run the Python, compare the output of commands.

In a console block `...` matches any text, and `$ echo $?` followed by a number states an exit
status other than 0. Commands that serve run until the end of the document, and must then exit
with 0.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import PYTHON_LANGUAGES, Block, Command, blocks, commands
from tests.docs.serving import Served

RUN = ("duly ", "python -c ", "python ")
SERVE = ("duly planner ", "duly run ", "duly serve ", "duly worker ")
# Commands that are tested elsewhere, or that change the machine.
SKIPPED_COMMANDS = ("apt-get ", "cd ", "git ", "make", "pip install ", "source ")
COMMAND_SECONDS_MAX = 60
# A warning that only old SQLite versions cause, so no document shows it.
REMARK = re.compile(r"^.*sqlite \S+ can lose data when a checkpoint.*\n", re.MULTILINE)


def run_document(text: str, path: str, folder: Path) -> None:
    """Run the blocks of a document in order, in one namespace and one folder."""
    namespace: dict[str, object] = {"__name__": "documents"}
    printed = ""
    with contextlib.ExitStack() as serving:
        for block in blocks(text):
            if block.file is not None:
                (folder / block.file).write_text(block.code)
            elif block.not_run is not None:
                continue
            elif block.is_output:
                assert_shown(block.code, printed, f"line {block.line}")
            elif block.language in PYTHON_LANGUAGES:
                printed = run_python(block, namespace, path)
            elif block.language == "console":
                for command in commands(block):
                    run_command(command, folder, serving)


def run_python(block: Block, namespace: dict[str, object], path: str) -> str:
    """Run a Python block and return what it printed."""
    if ">>> " not in block.code:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            # Leading newlines make a traceback show the line of the document.
            code = compile("\n" * (block.line - 1) + block.code, path, "exec")
            exec(code, namespace)  # noqa: S102
        return printed.getvalue()
    example = doctest.DocTestParser().get_doctest(block.code, namespace, path, path, block.line - 1)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example, out=report.append, clear_globs=False)
    namespace.update(example.globs)
    assert not runner.failures, "".join(report)
    return ""


def run_command(command: Command, folder: Path, serving: contextlib.ExitStack) -> None:
    """Run a command. For a command that serves, wait until it has printed the lines shown."""
    if command.text.startswith(SKIPPED_COMMANDS):
        return
    where = f"line {command.line}: $ {command.text}"
    if not command.text.startswith(RUN):
        pytest.fail(f"{where}\nnot a command this test can run; mark its block as not run")
    if command.text.startswith(SERVE) and "--help" not in command.text:
        served = serving.enter_context(started(command.text, folder))
        served.wait_for(command.expected.splitlines(), where)
        return
    done = subprocess.run(
        ["sh", "-c", command.text],  # noqa: S607
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == command.status, f"{where}\n{done.stdout}"
    if command.expected:
        assert_shown(command.expected, done.stdout, where)


@contextlib.contextmanager
def started(text: str, folder: Path) -> Iterator[Served]:
    """Start a command that serves, on a free port because documents may run in parallel."""
    serves_http = not text.startswith(("duly planner ", "duly worker ")) and "--port" not in text
    served = Served(f"{text} --port 0" if serves_http else text, folder, environment(folder))
    try:
        yield served
    finally:
        status = served.stop()
    assert status == 0, f"$ {text} ended with {status}\n{served.text}"


def assert_shown(expected: str, printed: str, where: str) -> None:
    """Assert that the output matches what the document shows."""
    matches = doctest.OutputChecker().check_output(
        _trimmed(expected), _trimmed(REMARK.sub("", printed)), doctest.ELLIPSIS
    )
    assert matches, f"{where}\nexpected:\n{expected}\ngot:\n{printed}"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a reader's terminal, without the settings of this process."""
    return {
        "COLUMNS": "100",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
    }


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"
