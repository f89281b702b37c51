"""The HTTP surface: dispatch, tick, webhooks and the API for end users, as one ASGI application."""
