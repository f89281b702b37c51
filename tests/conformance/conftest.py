"""Readable failures: the suites are part of the package, so pytest must be told to look in."""

import pytest

pytest.register_assert_rewrite("duly.testing.conformance")
