"""Style checks as functions: each takes a file or a fact and yields complaints.

tests/test_tidy.py runs them over the repository, and each of them on a bad sample.
"""
