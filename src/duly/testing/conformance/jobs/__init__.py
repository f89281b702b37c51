"""Conformance: jobs, fairness, locks and workers."""
