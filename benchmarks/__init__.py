"""Benchmarks of Duly beside comparable libraries, in one run on one machine."""
