"""What goes wrong in a simulation, and how often. Shares are of the verbs that a node asks for."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """Everything that may go wrong; the defaults are a calm day."""

    refused: float = 0.0
    """The database refuses the verb; nothing was applied."""
    lost: float = 0.0
    """The verb is applied, and its answer lost."""
    killed: float = 0.0
    """The node dies at the verb: before it, or between it and its answer."""
    delay_s: float = 0.002
    """The mean way to the database, and back."""
    stalled: float = 0.0
    """Ways that take seconds."""
    stall_s: float = 0.0
    """How long such a way takes, on average."""
    hints_lost: float = 0.0
    hints_doubled: float = 0.0
    skew_s: float = 0.0
    """How wrong the clock of a node may be."""
    cut_every_s: float | None = None
    """How often a node is cut off from the database, on average; None: never."""
    cut_s: float = 0.0
    """For how long, on average."""
    death_every_s: float | None = None
    """How often a node dies, or is stopped, whatever it is about; None: never."""
    rest_s: float = 0.0
    """How long it takes, on average, until another takes its place."""
    freeze_every_s: float | None = None
    """How often a process stands still and comes back, on average; None: never."""
    freeze_leases: float = 0.0
    """For how long at most, in leases: more than one, and others have taken its jobs over."""
    losses_every_s: float | None = None
    """How often nodes die one after another, each when it has the jobs of the one before."""
    losses: int = 0
    """How many of them die in a row."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        """The weather of one simulation: each kind of fault is there or not."""

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


CALM = Faults()
