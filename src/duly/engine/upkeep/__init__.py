"""Use cases of upkeep: retention, erasure, reconcile and new zone rules."""
