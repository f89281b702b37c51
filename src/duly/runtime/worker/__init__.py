"""The worker: claims jobs, runs them in slots and stores their outcomes."""
