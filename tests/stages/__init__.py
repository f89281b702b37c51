"""The stages of `make test-all`: tests too slow for `make test`, or that need extra tools."""
