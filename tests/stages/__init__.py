"""The stages of `make test-all`: what `make test` leaves out because it is slow or needs tools."""
