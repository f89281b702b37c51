"""The parts of documents that are generated from the code.

A page contains such a part between `<!-- generated: name -->` and `<!-- end -->`; the rest is
written by hand. `make docs` updates the parts, and a test fails when one is out of date.
"""

from tools.reference.pages import PAGES, fill, marks, stale

__all__ = ["PAGES", "fill", "marks", "stale"]
