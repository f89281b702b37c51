"""The memory store passes every suite."""

import pytest

from duly.stores import MemoryStore
from duly.testing.conformance import (
    DocumentConformance,
    IndexConformance,
    OpenStore,
    ProcessConformance,
    ScheduleConformance,
    StoreConformance,
    TransactionConformance,
)


class MemoryBackend(StoreConformance):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return MemoryStore


class TestIndex(MemoryBackend, IndexConformance):
    pass


class TestDocuments(MemoryBackend, DocumentConformance):
    pass


class TestSchedules(MemoryBackend, ScheduleConformance):
    pass


class TestTransactions(MemoryBackend, TransactionConformance):
    pass


class TestProcesses(MemoryBackend, ProcessConformance):
    pass
