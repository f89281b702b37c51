"""Claims on PostgreSQL skip ranges of dead entries and find every entry added meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from benchmarks.blocks import Blocks
from sqlalchemy import Connection, create_engine

from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, LeasedJob, NewJob, WorkerId
from duly.model.retries import RetryPolicy
from duly.rules.outcomes import Failed, Released, Succeeded, decide
from duly.stores import open_store
from duly.stores.sql.dialects.postgresql import jobs
from duly.stores.sql.fast import claims
from duly.stores.sql.gaps import ranges, search
from duly.stores.sql.store import SqlStore

WORKER = WorkerId("worker_1")
PASSED = 20_000
OLD_MS = 1_700_000_000_000
LINE = "duly_job_line"

# Line entries like those of jobs that were queued and then claimed, without the jobs.
ENTER = """
    INSERT INTO duly_job_line (queue, place, id, workspace, action, run_at_ms)
    SELECT 'default', %(from)s + i, 'passed_' || i, '', 'a.b', 0
    FROM generate_series(1, %(many)s) AS i
"""
LEAVE = "DELETE FROM duly_job_line WHERE id LIKE 'passed%'"


class Line:
    """A store, and other writers to its database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: SqlStore = open_store(url)  # type: ignore[assignment]

    def run(self, verb: Any) -> Any:
        return asyncio.run(verb)

    def add(self, *names: str, **fields: Any) -> None:
        self.run(self.store.insert_jobs([job(name, **fields) for name in names]))

    def take(self, limit: int = 10, **fields: Any) -> list[LeasedJob]:
        request = ClaimRequest(worker=WORKER, limit=limit, **fields)
        return list(self.run(self.store.claim_jobs(request)).jobs)

    def claim(self, limit: int = 10, **fields: Any) -> list[str]:
        return [each.id for each in self.take(limit, **fields)]

    def known(self) -> tuple[search.Wanted, search._Kept]:
        """Return what the store remembers of the line."""
        wanted: search.Wanted = (search.LINE, ("default",))
        return wanted, self.store._gaps._kept[wanted]

    def count(self, limit: int = 10) -> Blocks:
        """Claim, and return the blocks of the line that the claim read."""
        blocks = Blocks(LINE)
        with blocks.counting():
            self.claim(limit)
        return blocks

    def count_all(self) -> Blocks:
        """Claim, and return the blocks of all tables that the claim read."""
        blocks = Blocks()
        with blocks.counting():
            self.claim()
        return blocks

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction of another session until the block ends."""
        engine = create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            yield connection
        engine.dispose()

    def let_pass(self, many: int = PASSED, from_ms: int = OLD_MS) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(ENTER, {"many": many, "from": from_ms})
        with psycopg.connect(self.url) as connection:
            connection.execute(LEAVE)


def job(name: str, **fields: Any) -> NewJob:
    return NewJob(id=JobId(name), action="a.b", **fields)


@pytest.fixture
def line(emptied_url: str) -> Iterator[Line]:
    line = Line(emptied_url)
    yield line
    asyncio.run(line.store.close())


@pytest.fixture
def held(line: Line) -> Iterator[None]:
    """Hold a snapshot, so that vacuum removes no dead rows."""
    with psycopg.connect(line.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM duly_jobs")
        yield


@pytest.fixture
def writing(line: Line) -> Iterator[None]:
    """Hold open other transactions with ids, so that searches also look for their entries."""
    with ExitStack() as writers:
        for _ in range(3):
            writer = writers.enter_context(psycopg.connect(line.url))
            writer.execute("SELECT pg_current_xact_id()")
        yield


def check_late_commit(line: Line) -> None:
    """Check that an entry in front, uncommitted for three claims, is claimed after its commit."""
    line.add("job_0")
    with line.transaction() as connection:
        line.store.insert_jobs_in(connection, [job("job_low", run_at_ms=OLD_MS)])
        assert line.claim() == ["job_0"]
        line.add("job_1")
        assert line.claim() == ["job_1"]
        assert line.claim() == []
    assert line.claim() == ["job_low"]


def test_an_entry_of_an_open_transaction_is_claimed_after_its_commit(line: Line) -> None:
    check_late_commit(line)


@pytest.mark.planted("gaps")
def test_forgetting_open_transactions_is_caught(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = ranges.Snapshot.parse
    monkeypatch.setattr(ranges.Snapshot, "parse", lambda text: parse(text)._replace(running=()))
    with pytest.raises(AssertionError):
        check_late_commit(line)


def test_an_entry_of_a_savepoint_is_claimed(line: Line) -> None:
    assert line.claim() == []
    with line.transaction() as connection:
        with connection.begin_nested():
            line.store.insert_jobs_in(connection, [job("job_kept", run_at_ms=OLD_MS)])
        undone = connection.begin_nested()
        line.store.insert_jobs_in(connection, [job("job_undone", run_at_ms=OLD_MS)])
        undone.rollback()
        assert line.claim() == []
    assert line.claim() == ["job_kept"]


def check_undone_claim(line: Line) -> None:
    """Check that jobs of a claim rolled back during other searches are claimed again."""
    line.add("job_0", "job_1")
    engine = create_engine(line.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.exec_driver_sql("DELETE FROM duly_job_line")  # as a claim does, uncommitted
        assert line.claim() == []
        line.add("job_2")
        assert line.claim() == ["job_2"]
        assert line.claim() == []
        connection.rollback()
    engine.dispose()
    assert line.claim() == ["job_0", "job_1"]


def test_jobs_of_a_claim_that_is_rolled_back_are_claimed_again(line: Line) -> None:
    check_undone_claim(line)


@pytest.mark.planted("gaps")
def test_searching_past_locks_is_caught(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = search._columns.__wrapped__

    def locking(*asked: Any) -> str:
        return str(plain(*asked)).replace("LIMIT 1)", "LIMIT 1 FOR UPDATE SKIP LOCKED)")

    monkeypatch.setattr(search, "_columns", locking)
    with pytest.raises(AssertionError):
        check_undone_claim(line)


def test_an_own_claim_that_is_rolled_back_leaves_nothing_behind(line: Line) -> None:
    """Also if the claim searched a second time after rescuing a job."""
    line.add("job_0", "job_1")
    assert line.claim(1, lease_ms=1) == ["job_0"]

    def fail_after_claim(db: Any) -> None:
        claimed = claims.claim_jobs(db, ClaimRequest(worker=WORKER, limit=10))
        assert claimed.jobs
        claims._look(db, ClaimRequest(worker=WORKER))
        raise LookupError

    with pytest.raises(LookupError):
        line.run(line.store._run(fail_after_claim))
    taken: set[str] = set()
    while len(taken) < 2:
        taken |= set(line.claim())
    assert taken == {"job_0", "job_1"}


@pytest.mark.parametrize("aging_ms", [0, 60_000])
def test_urgent_jobs_come_first(line: Line, aging_ms: int) -> None:
    line.add("job_0", "job_1", aging_ms=aging_ms)
    assert line.claim(1) == ["job_0"]
    line.add("job_urgent", priority=5, aging_ms=aging_ms)
    assert line.claim(1) == ["job_urgent"]
    line.add("job_2", aging_ms=aging_ms)
    line.add("job_more", priority=7, aging_ms=aging_ms)
    line.add("job_less", priority=-5, aging_ms=aging_ms)
    assert line.claim(2) == ["job_more", "job_1"]
    assert line.claim() == ["job_2", "job_less"]
    line.add("job_again", priority=5, aging_ms=aging_ms)
    line.add("job_least", priority=-9, aging_ms=aging_ms)
    assert line.claim() == ["job_again", "job_least"]


@pytest.mark.planted("gaps")
def test_missing_a_new_entry_in_a_gap_is_caught(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = ranges.Gaps.after

    def forgetful(self: ranges.Gaps, found: ranges.Found, is_stepping: bool) -> ranges.Gaps:
        return after(self, found._replace(entered=[]), is_stepping)

    monkeypatch.setattr(ranges.Gaps, "after", forgetful)
    with pytest.raises(AssertionError):
        test_urgent_jobs_come_first(line, 0)


def test_a_released_job_keeps_its_place(line: Line) -> None:
    line.add(*[f"job_{number}" for number in range(6)])
    first, *others = line.take(3)
    line.run(line.store.finish([decide(each, Succeeded()) for each in others]))
    assert line.claim(1) == ["job_3"]
    line.run(line.store.finish([decide(first, Released())]))
    assert line.claim(2) == ["job_0", "job_4"]


def test_a_rescued_job_keeps_its_place(line: Line) -> None:
    line.add(*[f"job_{number}" for number in range(4)])
    assert line.claim(1, lease_ms=1) == ["job_0"]
    taken: list[str] = []
    while "job_0" not in taken:
        taken = line.claim(1)
    assert line.claim() == sorted({"job_1", "job_2", "job_3"} - set(taken))


def test_a_retried_job_is_claimed_at_its_new_time(line: Line) -> None:
    retry = RetryPolicy(attempts=3, backoff="none")
    line.add("job_0", retry=retry)
    (taken,) = line.take()
    line.run(line.store.finish([decide(taken, Failed("broken"))]))
    found: list[str] = []
    while not found:
        found = line.claim()
    assert found == ["job_0"]


@pytest.mark.usefixtures("held")
def test_claims_skip_dead_entries(line: Line) -> None:
    line.add(*[f"job_{number:03}" for number in range(100)])
    line.claim()
    before = line.count()
    line.let_pass()
    line.claim()  # this walk is the only one
    after = [line.count() for _ in range(3)]
    assert max(each.blocks for each in after) <= 2 * before.blocks, [e.texts for e in after]
    assert [each.statements for each in after] == [before.statements] * 3


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("is_analysed", [False, True])
def test_urgent_claims_skip_dead_entries(line: Line, is_analysed: bool) -> None:
    line.add(*[f"job_{number:03}" for number in range(100)])
    line.claim()
    before = line.count()
    line.let_pass()
    line.let_pass(from_ms=OLD_MS - 2**43)
    if is_analysed:
        with psycopg.connect(line.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE duly_job_line")
    line.claim()
    for number in range(3):
        line.add(f"job_urgent_{number}", priority=1)
        assert (found := line.count()).blocks <= 2 * before.blocks, found.texts


@pytest.mark.usefixtures("held")
def test_a_job_of_another_action_does_not_make_claims_scan(line: Line) -> None:
    line.run(
        line.store.insert_jobs([NewJob(id=JobId("job_x"), action="no.body", run_at_ms=OLD_MS - 1)])
    )
    line.add(*[f"job_{number:03}" for number in range(200)])
    request = ClaimRequest(worker=WORKER, limit=10, actions=("a.b",))

    def count() -> Blocks:
        blocks = Blocks(LINE)
        with blocks.counting():
            assert len(line.run(line.store.claim_jobs(request)).jobs) == 10
        return blocks

    count()
    before = count()
    line.let_pass()
    for _ in range(3):
        count()
    assert (found := count()).blocks <= 2 * before.blocks, found.texts


def later(name: str, ms: int = 4_000_000_000_000) -> NewJob:
    return job(name, run_at_ms=ms)


def test_a_waiting_job_of_an_open_transaction_is_promoted_after_its_commit(line: Line) -> None:
    """Meanwhile searches have passed its run time."""
    line.run(line.store.insert_jobs([later("job_far")]))
    now_ms = line.run(line.store.now_ms())
    with line.transaction() as connection:
        line.store.insert_jobs_in(connection, [later("job_near", now_ms + 200)])
        assert line.claim() == []
        while line.run(line.store.now_ms()) < now_ms + 200:
            assert line.claim() == []
    assert line.claim() == ["job_near"]


def check_retry(line: Line) -> None:
    """Check that a retried job is claimed although searches have passed its new run time."""
    line.run(line.store.insert_jobs([later("job_far"), job("job_0")]))
    (taken,) = line.take()
    assert line.claim() == []
    retried = decide(taken, Failed("broken"))._replace(delay_ms=0)
    line.run(line.store.finish([retried]))
    assert line.claim() == ["job_0"]


def test_a_job_that_waits_again_is_promoted(line: Line) -> None:
    check_retry(line)


@pytest.mark.planted("gaps")
def test_missing_a_job_that_waits_again_is_caught(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = jobs._end_statement

    def unseen(*shape: Any) -> str:
        return plain(*shape).replace(", entered = DEFAULT", "")

    monkeypatch.setattr(jobs, "_end_statement", unseen)
    with pytest.raises(AssertionError):
        check_retry(line)


def test_a_shorter_lease_than_those_before_is_rescued(line: Line) -> None:
    """Its mark sorts before everything that searches have found so far."""
    line.add("job_0", "job_1")
    assert line.claim(1, lease_ms=3_600_000) == ["job_0"]
    assert line.claim(1, lease_ms=1) == ["job_1"]
    found: list[str] = []
    while not found:
        found = line.claim()
    assert found == ["job_1"]


@pytest.mark.usefixtures("held", "writing")
@pytest.mark.parametrize("maintenance", [None, "ANALYZE", "VACUUM ANALYZE"])
def test_claims_skip_dead_promotions_and_leases(line: Line, maintenance: str | None) -> None:
    line.add(*[f"job_{number:03}" for number in range(100)])
    line.run(line.store.insert_jobs([later("job_far")]))
    line.claim()
    before = line.count_all()
    with psycopg.connect(line.url) as connection:
        connection.execute(
            "INSERT INTO duly_job_marks (state, at_ms, jobs, ids) "
            "SELECT 'processing', %s + i, 1, '[]' FROM generate_series(1, 20000) AS i",
            [OLD_MS],
        )
        connection.execute(
            "INSERT INTO duly_jobs (id, action, queue, workspace, scope, state, priority, place, "
            "run_at_ms, created_at_ms, attempts, max_attempts, careful, fence, events, retry, "
            "timeout_ms, cancel_asked, in_line, waits, input) SELECT 'passed_' || i, 'a.b', "
            "'default', '', '', 'scheduled', 0, 0, %s + i, 0, 0, 1, 0, 0, 1, '', 1, 0, 0, 1, '' "
            "FROM generate_series(1, 20000) AS i",
            [OLD_MS],
        )
        connection.execute("DELETE FROM duly_jobs WHERE id LIKE 'passed%'")
        connection.execute("DELETE FROM duly_job_marks WHERE ids = '[]'")
    if maintenance is not None:
        with psycopg.connect(line.url, autocommit=True) as connection:
            connection.execute(maintenance)
    line.claim()  # this walk is the only one
    after = line.count_all()
    assert after.blocks <= 2 * before.blocks, after.texts
    assert after.statements == before.statements


@pytest.mark.usefixtures("held")
def test_keepers_skip_marks_of_ended_jobs(line: Line) -> None:
    """Each look is bounded, and the next one continues where it stopped."""
    line.add("job_0")
    line.claim(lease_ms=3_600_000)

    def look() -> tuple[int, int]:
        blocks = Blocks("duly_job_marks")
        with blocks.counting():
            found = line.run(line.store.next_lease_end())
        assert found.at_ms is not None
        return found.at_ms, blocks.blocks

    lease_end_ms, before = look()
    with psycopg.connect(line.url) as connection:
        connection.execute(
            "INSERT INTO duly_job_marks (state, at_ms, jobs, ids) "
            "SELECT 'processing', %s + i, 1, '[\"job_0\"]' FROM generate_series(1, 20000) AS i",
            [OLD_MS],
        )
    looks = 0
    while line.run(line.store.next_lease_end()).at_ms != lease_end_ms:
        looks += 1
        assert looks < 5
    look()  # this walk is the only one
    assert look() <= (lease_end_ms, 2 * before)


def test_gaps_of_another_server_are_not_used(line: Line) -> None:
    """A promoted standby may lack deletions of the old primary."""
    line.add("job_0")
    line.claim()
    wanted, kept = line.known()
    everything = ranges.Gaps(kept.gaps.snapshot, ())
    line.add("job_1")
    with psycopg.connect(line.url) as connection:
        # Make the entry look as if it had always been there.
        connection.execute("ALTER TABLE duly_job_line DISABLE TRIGGER USER")
        connection.execute("UPDATE duly_job_line SET entered = 0")
        connection.execute("ALTER TABLE duly_job_line ENABLE TRIGGER USER")
    line.store._gaps._kept[wanted] = search._Kept(everything, "another", kept.begun_ms)
    assert line.claim() == ["job_1"]


def test_gaps_of_a_later_snapshot_are_not_used(line: Line) -> None:
    line.add("job_0")
    line.claim()
    wanted, kept = line.known()
    later = ranges.Snapshot(kept.gaps.snapshot.xmax + 1_000_000, ())
    line.add("job_1")
    line.store._gaps._kept[wanted] = search._Kept(ranges.Gaps(later, ()), kept.server, 0)
    assert line.claim() == ["job_1"]


def test_remembered_gaps_expire(line: Line) -> None:
    line.claim()
    wanted, kept = line.known()
    begun_ms = kept.begun_ms - search.MAX_AGE_MS - 1
    line.store._gaps._kept[wanted] = search._Kept(kept.gaps, kept.server, begun_ms)
    line.claim()
    assert wanted not in line.store._gaps._kept


def test_a_broken_connection_clears_the_gaps(line: Line) -> None:
    line.claim()
    with psycopg.connect(line.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(Exception, match=r"terminat|closed"):
        line.claim()
    assert line.store._gaps._kept == {}


def test_a_held_snapshot_has_an_age(line: Line) -> None:
    with psycopg.connect(line.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM duly_jobs")
        while not line.run(line.store.oldest_snapshot_ms()):
            pass
    assert line.run(line.store.oldest_snapshot_ms()) == 0
