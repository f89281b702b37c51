"""The trial in its short form; the long one is `make test-dispatch`."""

from pathlib import Path

from tests.system.fleet.trial import run_trial, summary


def test_a_killed_server_loses_nothing_and_doubles_nothing(
    postgres_url: str, tmp_path: Path
) -> None:
    verdict = run_trial(postgres_url, tmp_path, 300)
    assert verdict.is_good, summary(verdict)
    assert (verdict.expected, verdict.finished) == (300, verdict.enqueued)
