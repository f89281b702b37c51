"""Counts the blocks that a store's statements read on PostgreSQL, as reported by the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event

_EXPLAINED = ("SELECT", "DELETE", "UPDATE", "INSERT", "WITH")


class Blocks:
    """Counts statements that name a table and the blocks they read."""

    def __init__(self, table: str = "duly_") -> None:
        self.blocks = 0
        self.statements = 0
        self.texts: list[str] = []
        self._table = table

    @contextmanager
    def counting(self) -> Iterator[Blocks]:
        """Count this process's statements in the block; each runs twice, once under EXPLAIN."""
        event.listen(Engine, "before_cursor_execute", self._explain)
        try:
            yield self
        finally:
            event.remove(Engine, "before_cursor_execute", self._explain)

    def _explain(
        self,
        connection: Connection,
        _cursor: object,
        statement: str,
        parameters: Any,
        _context: object,
        executemany: bool,
    ) -> None:
        if executemany or statement.split(maxsplit=1)[0] not in _EXPLAINED:
            return
        self.statements += 1
        if self._table not in statement:
            return
        nested = connection.begin_nested()  # EXPLAIN ANALYZE runs the statement
        how = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
        found = connection.exec_driver_sql(f"{how} {statement}", parameters).scalar_one()
        nested.rollback()
        report = json.loads(found) if isinstance(found, str) else found
        top = report[0]["Plan"]
        blocks = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        self.blocks += blocks
        self.texts.append(f"{blocks} blocks: {statement}")
