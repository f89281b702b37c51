"""The HTTP surface: dispatch, tick, webhooks, users' schedules, pages and metrics, over ASGI.

It decides nothing: what is read and done goes through `dispatch`, `client` and `admin`.
"""
