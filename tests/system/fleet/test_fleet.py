"""The fleet in its short form; the long one is `make test-dispatch`."""

import pytest

from tests.system.fleet.trial import Tally, run_trial


def test_a_killed_server_loses_nothing_and_doubles_nothing(postgres_url: str) -> None:
    tally = run_trial(postgres_url, 300)
    assert (tally.lost, tally.doubled, tally.unaccounted) == (0, 0, 0), str(tally)
    assert tally.undeclared == 0, str(tally)


@pytest.mark.planted("dispatch")
def test_the_tally_sees_what_it_looks_for() -> None:
    states = {("at_least_once", "fired"): 2, ("at_most_once", "fired"): 1}
    tally = Tally(4, states, {("at_least_once", 1): 1, ("at_most_once", 2): 1})
    assert (tally.lost, tally.doubled, tally.unaccounted) == (1, 1, 1)
