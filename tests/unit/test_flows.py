"""Tests of flows: typed inputs of actions, static schedules and resolvers, checked at import."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from tests.samples import run

from duly.app import Duly
from duly.errors import InvalidInput, InvalidTrigger
from duly.flows.context import Context
from duly.flows.flow import Action, Flow
from duly.flows.resolved import ScheduleConfig
from duly.model.principals import Principal
from duly.model.schedules import Limits, Misfire
from duly.model.scopes import SYSTEM, user, workspace
from duly.runtime import WorkerOptions
from duly.triggers import cron, every


@dataclass
class AsDataclass:
    to: str
    copies: int = 1


class AsStruct(msgspec.Struct):
    to: str
    copies: int = 1


class AsTypedDict(TypedDict):
    to: str
    copies: int


class AsModel(pydantic.BaseModel):
    to: str
    copies: int = 1


KINDS = [
    (AsDataclass, AsDataclass("ada", 2)),
    (AsStruct, AsStruct("ada", 2)),
    (AsTypedDict, {"to": "ada", "copies": 2}),
    (AsModel, AsModel(to="ada", copies=2)),
]


def action_of(kind: type[Any]) -> Action:
    def send(digest: Any, ctx: Context) -> None: ...

    send.__annotations__["digest"] = kind
    return Flow("mail").action(redact=["to"])(send)


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_every_kind_of_input_is_typed(kind: type[Any], value: Any) -> None:
    action = action_of(kind)
    text = action.encode(value)
    assert msgspec.json.decode(text) == {"to": "ada", "copies": 2}
    assert action.decode(text) == value
    assert action.decode(action.encode({"to": "ada", "copies": 2})) == value
    for wrong in ({"to": 5, "copies": 2}, {"copies": 2}, None):
        with pytest.raises(InvalidInput, match=kind.__name__):
            action.encode(wrong)
    assert action.redact == {"to"}


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_input_of_a_schedule_is_checked_by_its_action(kind: type[Any], value: Any) -> None:
    """Invalid input is refused when the schedule is created, not when it fires."""
    flow = Flow("mail")

    def send(digest: Any) -> None: ...

    send.__annotations__["digest"] = kind
    action = flow.action(send)
    mine = Duly("memory:", flows=[flow]).schedules(flow).of(user("u_7"))
    made = run(mine.create("weekly", "0 9 * * MON", action=action, input=value))
    assert made.definition.input == {"to": "ada", "copies": 2}
    assert made.definition.action == "send"
    with pytest.raises(InvalidInput, match=kind.__name__):
        run(mine.create("broken", "0 9 * * MON", action="send", input={"to": 5}))
    with pytest.raises(InvalidInput, match=kind.__name__):
        run(mine.update("weekly", input={"copies": 2}))
    with pytest.raises(InvalidInput, match=kind.__name__):
        run(mine.create("empty", "0 9 * * MON", action=action))
    assert run(mine.update("weekly", trigger="0 8 * * MON")).version == 2


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (str, "hello", 5),
        (int, 5, "5"),
        (float, 5, "5"),
        (bool, True, 1),
        (list, [1], {}),
        (dict, {"a": 1}, [1]),
    ],
)
def test_plain_inputs_are_checked_too(kind: type[Any], good: object, bad: object) -> None:
    async def send(what: Any) -> None: ...

    send.__annotations__["what"] = kind
    flow = Flow("mail")
    action = flow.action(send)
    assert action.decode(action.encode(good)) == good
    for wrong in (bad, None):
        with pytest.raises(InvalidInput, match=r"input of mail\.send: Expected `\w+`, got"):
            action.encode(wrong)
    with pytest.raises(InvalidInput, match="got"):
        flow.fit("send", bad)


@pytest.mark.parametrize("kind", [object, Any, str | None])
def test_other_annotations_take_any_json(kind: Any) -> None:
    async def send(what: Any) -> None: ...

    send.__annotations__["what"] = kind
    action = Flow("mail").action(send)
    assert [action.encode(value) for value in (5, "a", None)] == ["5", '"a"', "null"]


def test_missing_input_uses_the_default_of_the_function() -> None:
    flow = Flow("mail")

    @flow.action
    async def remind(text: str = "look again") -> None: ...

    @flow.action
    async def send(what: AsDataclass = AsDataclass("ada")) -> None: ...  # noqa: B008 - a default

    assert (remind.encode(None), flow.fit("remind", None)) == ('"look again"', "look again")
    assert flow.fit("send", None) == {"to": "ada", "copies": 1}
    assert remind.encode("now") == '"now"'


def test_an_action_of_another_flow_is_refused() -> None:
    flow, other = Flow("mail"), Flow("other")
    send = other.action(lambda_named("send"))
    flow.action(lambda_named("remind"))
    schedules = Duly("memory:", flows=[flow, other]).schedules("mail").of(SYSTEM)
    with pytest.raises(InvalidInput, match="does not belong to flow 'mail'"):
        run(schedules.create("n", "0 9 * * *", action=send))
    with pytest.raises(InvalidInput, match="did you mean 'remind'"):
        run(schedules.create("n", "0 9 * * *", action="remnd"))
    made = run(schedules.create("n", "0 9 * * *", action="mail.remind"))
    assert made.definition.action == "remind"


def lambda_named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


def test_an_unknown_flow_is_refused() -> None:
    app = Duly("memory:", flows=[Flow("mail")])
    with pytest.raises(InvalidInput, match="did you mean 'mail'"):
        app.schedules("mial")


def test_a_flow_sets_the_limits_of_owners() -> None:
    flow = Flow("mail", limits=Limits(shortest_interval_ms=5_000), zones="utc")
    flow.action(lambda_named("send"))
    mine = Duly("memory:", flows=[flow]).schedules("mail").of(user("u_7"))
    assert run(mine.create("n", every(seconds=5), action="send")).state == "active"
    with pytest.raises(InvalidTrigger, match="UTC"):
        run(mine.create("b", cron("0 9 * * *", tz="Europe/Berlin"), action="send"))


# Static schedules, as the code declares them.


def test_a_static_schedule_is_an_action_too() -> None:
    flow = Flow("mail")

    @flow.schedule(cron("0 2 * * *"), description="clean up", overlap="allow", priority=3)
    async def nightly(ctx: Context) -> None: ...

    assert isinstance(nightly, Action)
    assert flow.actions == {"nightly": nightly}
    declared = flow.statics["nightly"].definition
    assert (declared.action, declared.origin, declared.input) == ("nightly", "static", None)
    assert (declared.policies.overlap, declared.policies.priority) == ("allow", 3)
    assert declared.description == "clean up"


def test_an_action_may_be_scheduled_more_than_once() -> None:
    flow = Flow("mail")

    @flow.schedule("0 9 * * *", name="morning", input={"to": "ada"})
    @flow.schedule("0 17 * * *", name="evening")
    @flow.action(queue="mail")
    async def send(digest: AsDataclass = AsDataclass("all")) -> None: ...  # noqa: B008

    assert list(flow.statics) == ["evening", "morning"]
    assert send.queue == "mail"
    assert flow.statics["evening"].definition.input == {"to": "all", "copies": 1}
    assert flow.statics["morning"].definition.input == {"to": "ada"}


@pytest.mark.parametrize(
    ("trigger", "options", "words"),
    [
        ("0 25 * * *", {"input": {"to": "a"}}, "hour"),
        ("0 9 * * *", {"ovrlap": "skip"}, "did you mean 'overlap'"),
        ("0 9 * * *", {"input": {"to": "a"}, "overlap": "never"}, "overlap is 'never'"),
        ("0 9 * * *", {"input": {"to": 5}}, "AsDataclass"),
        ("0 9 * * *", {}, "AsDataclass"),
        ("0 9 * * *", {"input": {"to": "a"}, "name": "x" * 129}, "longer than 128"),
        ("0 9 * * *", {"input": {"to": "a"}, "misfire": "skip"}, "misfire"),
        ("0 9 * * *", {"input": {"to": "a"}, "interval_bounds_ms": (5, 1)}, "interval_bounds_ms"),
    ],
)
def test_invalid_schedules_are_refused_at_import(
    trigger: str, options: dict[str, Any], words: str
) -> None:
    flow = Flow("mail")

    async def send(digest: AsDataclass) -> None: ...

    with pytest.raises(InvalidInput, match=words):
        flow.schedule(trigger, **options)(send)
    assert flow.statics == {}


def test_two_static_schedules_of_one_name_are_refused() -> None:
    flow = Flow("mail")
    send = flow.action(lambda_named("send"))
    flow.schedule("0 9 * * *")(send)
    with pytest.raises(InvalidInput, match="has a schedule 'send' already"):
        flow.schedule("0 10 * * *")(send)
    with pytest.raises(InvalidInput, match="which is an action"):
        flow.schedule("0 10 * * *", name="b", queue="other")(send)
    with pytest.raises(InvalidInput, match="does not belong to flow 'other'"):
        Flow("other").schedule("0 10 * * *")(send)
    assert flow.schedule("0 9 * * *", name="c", misfire=Misfire("skip"))(send) is send


# Resolvers.


def test_a_flow_has_one_resolver() -> None:
    """A resolver may be sync or async; its answer is checked by the caller."""
    flow = Flow("mail")

    @flow.resolve
    async def resolve(schedule_id: str, ctx: object) -> ScheduleConfig | None:
        if schedule_id == "gone":
            return None
        return ScheduleConfig(action="send", principal=Principal("u_7", "o_1"), input={"a": 1})

    found = run(resolve("u_7/weekly", None))
    assert found is not None
    assert flow.resolver is resolve
    assert (found.enabled, found.trigger, found.principal.org_id) == (True, None, "o_1")
    with pytest.raises(InvalidInput, match="has a resolver already"):
        flow.resolve(lambda *_: None)
    plain = Flow("other")
    assert plain.resolve(lambda *_: None) is plain.resolver
    with pytest.raises(TypeError, match="principal"):
        ScheduleConfig(action="send")  # type: ignore[call-arg]


# Document 003's call: one schedule per action and workspace.


def test_schedule_declares_once_for_each_workspace() -> None:
    flow = Flow("reports")
    flow.action(lambda_named("weekly"))
    app = Duly("memory:", flows=[flow])

    async def start(interval_s: float) -> list[str]:
        made = [
            await app.schedule("reports.weekly", interval_s),
            await app.schedule("reports.weekly", interval_s, workspace="ws_a"),
            await app.schedule(flow.actions["weekly"], interval_s, workspace="ws_b"),
        ]
        return [each.outcome for each in made]

    assert run(start(60)) == ["created"] * 3
    assert run(start(60)) == ["unchanged"] * 3
    assert run(start(120)) == ["updated"] * 3
    rows = run(app.store.list_rows())
    assert sorted(row.scope for row in rows) == ["system", "workspace:ws_a", "workspace:ws_b"]
    found = run(app.schedules("reports").of(workspace("ws_a")).get("weekly"))
    assert found is not None
    assert found.definition.trigger.words == "Every 2 minutes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "at-most-once"}, "delivery is at-most-once; allowed: at_least_once or"),
        ({"redact": "national_id"}, r"redact is 'national_id', one text; pass a list"),
        ({"retry": 3}, r"retry is 3; pass RetryPolicy"),
        ({"timeout_s": 0}, "timeout_s is 0 s; allowed: 1 ms to 7 d"),
        ({"timeout_s": "5"}, "timeout_s is 5; pass seconds"),
        ({"timeout_s": float("inf")}, "timeout_s is inf; pass seconds"),
        ({"queue": ""}, "queue is ''"),
    ],
)
def test_invalid_options_are_refused_at_import(options: dict[str, Any], message: str) -> None:
    flow = Flow("mail")
    with pytest.raises(InvalidInput, match=message):
        flow.action(**options)
    assert flow.actions == {}


def test_zones_and_names_of_flows_are_checked() -> None:
    with pytest.raises(InvalidInput, match="zones is UTC; allowed: any or utc"):
        Flow("mail", zones="UTC")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="flow 'None'; allowed"):
        Flow(None)  # type: ignore[arg-type]


def test_two_flows_of_one_name_are_refused() -> None:
    one, two = Flow("same"), Flow("same")
    assert Duly("memory:", flows=[one, one]).flows == (one, one)
    with pytest.raises(InvalidInput, match="two flows are named 'same'"):
        Duly("memory:", flows=[one, two])


@pytest.mark.parametrize("queues", ["mail", [], [""], [7]])
def test_queues_of_a_worker_are_names(queues: Any) -> None:
    with pytest.raises(InvalidInput, match="queue"):
        WorkerOptions(queues=queues)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cret@h/db", "postgresql://***@h/db"),
        ("postgresql://h/db?user=u&password=s3cret", "postgresql://h/db?***"),
        ("postgresql://u:s3?c/ret@h:5432/db?password=s3c@ret", "postgresql://***@h:5432/db?***"),
        ("postgresql+psycopg://[::1]/db", "postgresql+psycopg://[::1]/db"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////var/jobs.db", "sqlite:////var/jobs.db"),
        ("memory:", "memory:"),
    ],
)
def test_the_url_is_shown_without_passwords(url: str, shown: str) -> None:
    assert Duly(url).safe_url == shown
