"""The tick: claims due occurrences of hand-over `http` and posts them."""
