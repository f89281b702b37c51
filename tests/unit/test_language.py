"""Tests of the advisory language check: each pattern finds a bad sample and skips a good one."""

import pytest
from tools.language import PATTERNS, findings

SAMPLES = {
    "image": ("def a_wish(): ...", '"""Return a summary of the requests, indeed."""'),
    "speech": ("# The store was told twice.", '"""Return the jobs that were reported."""'),
    "person": ('assert x, "nobody has it"', 'queue = "nobody"  # A queue without jobs.'),
    "question": ('"""Who holds the lease."""', '"""Return who holds the lease."""'),
    "quantity": ("_ROWS_MOST = 5", "most_rows = ROWS_MAX = 5"),
    "milliseconds": ('raise E(f"got {a} ms")', 'log(f"got {a} ms")\nraise E("got 5 s")'),
    "bound": ('"""It may have 5 at most."""', '"""It may grow. It has 5 at most."""'),
    "away": ("# Or leave `--url` away.", "# Omit it. The default is far away."),
}


@pytest.mark.parametrize("pattern", [each.name for each in PATTERNS])
def test_samples(pattern: str) -> None:
    bad, good = SAMPLES[pattern]
    assert [name for _, name, _ in findings(bad, ".py")] == [pattern]
    assert findings(good, ".py") == []


def test_matches_have_their_line_and_text() -> None:
    document = "Plain.\n```text\nnobody\n```\nIt waits for whoever asks.\n"
    assert findings(document, ".md") == [(5, "person", "It waits for whoever asks.")]
    code = 'def f():\n    """Return it.\n\n    Whoever asks.\n    """\n    # as told\n'
    found = [(4, "person", "Whoever asks."), (6, "speech", "# as told")]
    assert findings(code, ".py") == found
