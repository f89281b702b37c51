"""Use cases of schedules: edits, planning, hand-over, overlap and the ledger."""
