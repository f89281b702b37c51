"""The parts of documents that are made from the code.

A page marks where such a part stands, `<!-- generated: name -->` to `<!-- end -->`; what is around
it is written by hand. `make docs` fills the marks, and a test fails when one is stale.
"""

from tools.reference.pages import PAGES, fill, marks, stale

__all__ = ["PAGES", "fill", "marks", "stale"]
