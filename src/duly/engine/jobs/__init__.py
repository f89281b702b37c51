"""Use cases of jobs, their claims, tokens, locks and workers."""
