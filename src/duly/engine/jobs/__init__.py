"""Use cases of jobs: claims, tokens, locks and workers."""
