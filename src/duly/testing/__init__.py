"""What tests need: a clock that stands still, and suites that every store passes.

The suites are in duly.testing.conformance, which needs pytest; nothing else here does.
"""

from duly.testing.clock import ManualClock

__all__ = ["ManualClock"]
