"""The HTTP API: routes, bodies, OpenAPI."""
