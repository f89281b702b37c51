"""The use cases, each once: functions of a transaction over the port in `engine.port`."""
