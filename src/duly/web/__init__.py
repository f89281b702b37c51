"""The HTTP surface over ASGI: dispatch, tick, webhooks, users' schedules, dashboard and metrics.

It makes no decisions of its own: all reads and writes go through `dispatch`, `flows` and `admin`.
"""
