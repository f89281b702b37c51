"""Use cases of upkeep: retention, erasure, reconcile and time-zone updates."""
