"""The dashboard: pages rendered on the server, kept live by server-sent events."""
