"""Simulations: the production loops on a virtual clock, over a store and nodes that fail.

One seed determines everything, so a failure can be replayed. For applications: `fast_forward` runs
a month of their own schedules in seconds.
"""

from duly.testing.simulation.forward import Forwarded, fast_forward
from duly.testing.simulation.notes import Run
from duly.testing.simulation.verdicts import Verdict, simulate

__all__ = ["Forwarded", "Run", "Verdict", "fast_forward", "simulate"]
