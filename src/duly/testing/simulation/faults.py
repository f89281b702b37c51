"""Faults of a simulation and their rates. Probabilities are per store verb of a node."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """Fault rates of one simulation; by default nothing fails."""

    refused: float = 0.0
    """Probability that the database refuses the verb; nothing is applied."""
    lost: float = 0.0
    """Probability that the verb is applied and its answer is lost."""
    killed: float = 0.0
    """Probability that the node dies at the verb: before it, or before its answer arrives."""
    delay_s: float = 0.002
    """Mean one-way latency to the database, in seconds."""
    stalled: float = 0.0
    """Probability that one way takes `stall_s` on average instead."""
    stall_s: float = 0.0
    """Mean latency of a stalled way, in seconds."""
    hints_lost: float = 0.0
    hints_doubled: float = 0.0
    skew_s: float = 0.0
    """Maximum clock error of a node, in seconds, in either direction."""
    cut_every_s: float | None = None
    """Mean seconds between two network cuts of a node from the database. None: never."""
    cut_s: float = 0.0
    """Mean duration of a cut, in seconds."""
    death_every_s: float | None = None
    """Mean seconds between two deaths or stops of a node, at any point. None: never."""
    rest_s: float = 0.0
    """Mean seconds until a replacement node starts."""
    freeze_every_s: float | None = None
    """Mean seconds between two process freezes. None: never."""
    freeze_leases: float = 0.0
    """Maximum freeze, in lease durations; after more than one, others have taken over its jobs."""
    losses_every_s: float | None = None
    """Mean seconds between series of deaths, in which each node inherits the last one's jobs."""
    losses: int = 0
    """Deaths in one such series."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        """Draw the faults of one simulation; each kind may be absent."""

        def maybe(most: float, share: float = 0.6) -> float:
            return chance.uniform(0, most) if chance.random() < share else 0.0

        return cls(
            refused=maybe(0.08),
            lost=maybe(0.08),
            killed=maybe(0.004),
            delay_s=chance.choice((0.0005, 0.002, 0.05)),
            stalled=maybe(0.02),
            stall_s=chance.choice((1.0, 5.0, 20.0)),
            hints_lost=chance.choice((0.0, 0.5, 1.0)),
            hints_doubled=maybe(0.5),
            skew_s=maybe(3_600.0),
            cut_every_s=chance.choice((None, 20.0, 60.0)),
            cut_s=chance.choice((5.0, 15.0, 40.0)),
            death_every_s=chance.choice((None, 60.0, 200.0)),
            rest_s=chance.choice((1.0, 10.0, 90.0)),
            freeze_every_s=chance.choice((None, 20.0, 60.0)),
            freeze_leases=chance.choice((1.5, 3.0)),
            losses_every_s=chance.choice((None, None, 60.0)),
            losses=chance.choice((2, 3, 5)),
        )


NO_FAULTS = Faults()
