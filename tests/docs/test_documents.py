"""Tests of the documents: their Python runs, and their commands print what is shown.

A block preceded by `<!-- not run: reason -->` is reported as a skip with that reason.
"""

from pathlib import Path

import pytest

from tests.docs.blocks import Command, blocks, commands
from tests.docs.running import run_document

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


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

<!-- file: greeting.py -->
```python
print("good morning")
```

```console
$ python greeting.py
good morning
```

```python
print("one")
print("two")
```

prints

```text
one
...
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
        ("python", 35),
        ("console", 39),
        ("python", 44),
        ("text", 51),
    ]
    assert [block.not_run for block in found][:4] == [None, None, None, "needs a server"]
    assert [block.file for block in found][3:6] == [None, "greeting.py", None]
    assert [block.is_output for block in found][-2:] == [False, True]


def test_a_block_not_run_ends_with_its_fence() -> None:
    first, second = blocks("<!-- not run: slow -->\n\n```python\na\n```\n```python\nb\n```\n")
    assert (first.not_run, second.not_run) == ("slow", None)


def test_a_longer_fence_holds_a_shorter_one() -> None:
    (block,) = blocks("````markdown\n```python\n1 / 0\n```\n````\n")
    assert block.code == "```python\n1 / 0\n```\n"


def test_a_long_command_is_joined() -> None:
    (block,) = blocks('```console\n$ python -c \\\n  "print(1)"\n1\n```\n')
    assert commands(block) == [Command('python -c "print(1)"', 2, expected="1\n")]


@pytest.mark.planted("documents")
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
        ("```python\nprint(1)\n```\n\nprints\n\n```text\n2\n```\n", AssertionError),
        ("<!-- not run: -->\n```python\nx = 1\n```\n", pytest.fail.Exception),
    ],
)
def test_bad_samples_fail(text: str, error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error):
        run_document(text, "sample.md", tmp_path)


@pytest.mark.planted("documents")
def test_a_failure_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_document("# Title\n\n```python\n1 / 0\n```\n", "sample.md", tmp_path)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("sample.md", 4)
