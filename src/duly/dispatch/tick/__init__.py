"""The tick: takes due occurrences of hand-over `http` and posts them."""
