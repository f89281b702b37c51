"""The worker: claims jobs, runs them in slots, stores how they end."""
