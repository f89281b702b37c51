"""Test support: a manual clock, and conformance suites for stores.

The suites are in duly.testing.conformance. They and the pytest plugin need pytest.
"""

from duly.testing.clock import ManualClock

__all__ = ["ManualClock"]
