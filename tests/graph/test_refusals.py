"""What is not the right token for the right pause is refused, each with its own error, and changes nothing."""

from __future__ import annotations

import base64
import json
import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import jwt
import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from symfonic_interrupts import (
    CheckpointMissing,
    FrameworkConfig,
    FrameworkTenantScope,
    InterruptError,
    Interrupts,
    KeyRing,
    PauseSuperseded,
    ResponseInvalid,
    ResumeRefused,
    ScopeMismatch,
    ScopeRequired,
    StoreError,
    TokenConsumed,
    TokenExpired,
    TokenInvalid,
    UnknownInterrupt,
)
from tests.harness import ACME, CONFIG, KEY, Bench, Decision, Refund, open_bench, pauses, thread


class State(TypedDict):
    log: Annotated[list[Any], operator.add]


def gate(bench: Bench, bodies: list[Any], **options: Any) -> StateGraph[State]:
    point = bench.refunds(**options)

    def node(state: State) -> dict[str, Any]:
        decision = point.pause(Refund(order="A1", amount=90))
        bodies.append(decision)
        return {"log": [decision.note]}

    return StateGraph(State).add_node("gate", node).add_edge(START, "gate")


async def paused(bench: Bench, **options: Any) -> tuple[Any, Any, str, list[Any]]:
    bodies: list[Any] = []
    graph, adapter = bench.compile(gate(bench, bodies, **options))
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode=["custom"]))
    return graph, adapter, event.pause_token, bodies


def part(token: str, n: int) -> dict[str, Any]:
    text = token.split(".")[n]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def forge(token: str, key: bytes = b"x" * 32, header: dict[str, Any] | None = None, **claims: Any) -> str:
    return jwt.encode({**part(token, 1), **claims}, key, algorithm="HS256", headers=header or part(token, 0))


FORGED = {
    "signed with another key": forge,
    "another tenant's hash, re-signed": lambda token: forge(token, scope_hash="x" * 43),
    "cut": lambda token: token[:-1],
    "signature of another token": lambda token: token.rsplit(".", 1)[0] + "." + "A" * 43,
    "padded": lambda token: token + "=",
    "with white space": lambda token: token + "\n",
    "no algorithm": lambda token: jwt.encode(part(token, 1), None, algorithm="none", headers={"typ": "pause+jwt"}),
    "another kind": lambda token: forge(token, header={**part(token, 0), "typ": "JWT"}),
    "empty": lambda token: "",
    "no text": lambda token: None,
    "no JWT": lambda token: "i-0123456789ab",
    "too long": lambda token: token + "." + "A" * 4096,
}


@pytest.mark.parametrize("how", FORGED)
async def test_a_forged_token_is_invalid_and_touches_no_database(how: str, tmp_path: Path, sqlite_url: str) -> None:
    async with open_bench("sync", sqlite_url, tmp_path) as bench:
        _, adapter, token, bodies = await paused(bench)
        statements: list[str] = []

        @sa.event.listens_for(sa.Engine, "before_cursor_execute")
        def count(*args: Any) -> None:
            statements.append(args[2])

        try:
            for call in (adapter.inspect, lambda forged: adapter.answer(forged, {"approved": True})):
                with pytest.raises(TokenInvalid):
                    call(FORGED[how](token))
            assert statements == []
            adapter.inspect(token)
            assert statements != []
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", count)
        assert bench.states() == ["pending"]
        assert bodies == []


async def test_a_token_of_another_graph_is_invalid(bench: Bench) -> None:
    _, _, token, _ = await paused(bench)
    builder = StateGraph(State).add_node("other", lambda state: {"log": []}).add_edge(START, "other")
    _, other = bench.compile(builder, graph="other")

    with pytest.raises(TokenInvalid, match="audience or graph"):
        await bench.call(other, "answer", token, {"approved": True})


async def test_a_receipt_is_no_token(bench: Bench) -> None:
    _, adapter, token, _ = await paused(bench)
    await bench.call(adapter, "answer", token, {"approved": True})
    ((receipt,),) = bench.rows("SELECT receipt FROM interrupt_consumed_tokens")

    for text in (receipt, json.loads(receipt)["mac"]):
        with pytest.raises(TokenInvalid):
            await bench.call(adapter, "answer", text, {"approved": True})


async def test_a_token_ends_with_its_time(bench: Bench) -> None:
    bench.clock.move(-timedelta(hours=2))  # PostgreSQL decides by its own clock: ask in the past
    _, adapter, token, _ = await paused(bench, ttl=timedelta(hours=1))
    bench.clock.move(timedelta(hours=1, seconds=30))  # over, but within the verifier's skew: the claim decides

    with pytest.raises(TokenExpired) as refused:
        await bench.call(adapter, "answer", token, {"approved": True})
    assert refused.value.expired_at is not None

    bench.clock.move(timedelta(minutes=30))
    with pytest.raises(TokenExpired):
        await bench.call(adapter, "answer", token, {"approved": True})
    assert bench.states() == ["pending"]


async def test_a_name_that_is_not_registered_here_is_unknown(bench: Bench) -> None:
    _, _, token, _ = await paused(bench)
    async with _second_hub(bench) as (adapter, _):
        with pytest.raises(UnknownInterrupt):
            await bench.call(adapter, "answer", token, {"approved": True})


async def test_a_token_of_another_store_is_invalid(bench: Bench, tmp_path: Path) -> None:
    _, _, token, _ = await paused(bench)
    (tmp_path / "other").mkdir()
    async with open_bench(bench.mode, f"sqlite:///{tmp_path / 'other' / 'x.db'}", tmp_path / "other") as other:
        bodies: list[Any] = []
        _, elsewhere = other.compile(gate(other, bodies))
        with pytest.raises(TokenInvalid, match="not in this store"):
            await other.call(elsewhere, "answer", token, {"approved": True})


class _second_hub:  # noqa: N801 - reads as a function
    """A second `Interrupts` on the same store and saver, without the points of the first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def __aenter__(self) -> tuple[Any, Interrupts]:
        self._interrupts = Interrupts(
            self._bench.store_url, keys=KeyRing([KEY]), config=CONFIG, clock=self._bench.clock
        )
        builder = StateGraph(State).add_node("x", lambda state: {"log": []}).add_edge(START, "x")
        graph = builder.compile(checkpointer=self._interrupts.checkpointer(self._bench.saver))
        return self._interrupts.resume_adapter(graph), self._interrupts

    async def __aexit__(self, *_: object) -> None:
        self._interrupts.close()


async def test_another_scope_is_refused_recorded_and_spends_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    _, adapter, token, _ = await paused(bench)
    for scope in (
        FrameworkTenantScope("globex"),
        FrameworkTenantScope("acme", "east"),
        FrameworkTenantScope("acme", None, "n"),
    ):
        with pytest.raises(ScopeMismatch):
            await bench.call(adapter, "answer", token, {"approved": True}, scope=scope, actor="eve")

    assert bench.states() == ["pending"]
    recorded = [
        json.loads(body) for (body,) in bench.rows("SELECT body FROM interrupt_events WHERE type='interrupt_refused'")
    ]
    assert [(r["actor"], r["code"], r["name"]) for r in recorded] == [("eve", "scope_mismatch", "approval")] * 3
    assert recorded[0]["answering_scope_hash"] == FrameworkTenantScope("globex").scope_hash
    assert recorded[0]["scope_hash"] == ACME.scope_hash
    assert [r.name for r in caplog.records] == ["symfonic_interrupts.audit"] * 3
    assert (await bench.call(adapter, "answer", token, {"approved": True}, scope=ACME)).actor is None


async def test_an_answer_across_scopes_is_let_through_where_allowed_and_audited(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    graph, adapter, token, _ = await paused(bench, cross_scope_allowed=True)
    admin = FrameworkTenantScope("admins")

    result = await bench.call(
        adapter, "invoke", token, {"approved": True, "note": "by admin"}, scope=admin, actor="root"
    )

    assert result["log"] == ["by admin"]
    ((body,),) = bench.rows("SELECT body FROM interrupt_events WHERE type='interrupt_cross_scope'")
    (row,) = bench.rows("SELECT interrupt_id FROM interrupt_pauses")
    assert json.loads(body) == {
        "name": "approval",
        "interrupt_id": row[0],
        "scope_hash": ACME.scope_hash,
        "answering_scope_hash": admin.scope_hash,
        "actor": "root",
    }
    (record,) = caplog.records
    assert record.name == "symfonic_interrupts.audit"
    assert json.loads(record.getMessage().split(" ", 1)[1]) == json.loads(body)
    assert (await bench.call(graph, "get_state", thread())).next == ()


async def test_without_a_default_a_scope_is_required_to_ask_and_to_answer(
    mode: str, store_url: str, tmp_path: Path
) -> None:
    config = FrameworkConfig(experimental_interrupt=True)
    async with open_bench(mode, store_url, tmp_path, config) as bench:
        graph, adapter = bench.compile(gate(bench, []))
        with pytest.raises(ScopeRequired, match="tenant_id"):
            await bench.call(graph, "invoke", {"log": []}, {"configurable": {"thread_id": "t0"}})
        with pytest.raises(ScopeRequired, match="tenant_id"):
            await bench.call(graph, "invoke", {"log": []}, thread("t0", tenant_id=""))
        await bench.call(graph, "invoke", {"log": []}, thread())
        with pytest.raises(ScopeRequired):
            await bench.call(adapter, "pending")
        (event,) = await bench.call(adapter, "pending", scope=ACME)
        with pytest.raises(ScopeRequired):
            await bench.call(adapter, "answer", event.pause_token, {"approved": True})
        assert (await bench.call(adapter, "invoke", event.pause_token, {"approved": True}, scope=ACME)) is not None


@pytest.mark.parametrize("shape", ["bare", "id-keyed", "an envelope by hand"])
async def test_a_raw_resume_is_refused_and_then_both_questions_are_answered_by_their_tokens(
    bench: Bench, shape: str
) -> None:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        first = point.pause(Refund(order="first", amount=1))
        second = point.pause(Refund(order="second", amount=2))
        return {"log": [first.note, second.note]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    result = await bench.call(graph, "invoke", {"log": []}, thread())
    for note in ("first", "second"):
        (interrupt,) = (await bench.call(graph, "get_state", thread())).interrupts
        raw: Any = {"approved": True, "note": "raw"}
        if shape == "an envelope by hand":
            raw = {"answers": [{"response": '{"approved":true}', "receipt": {"jti": "x"}}]}
        if shape != "bare":
            raw = {interrupt.id: raw}
        with pytest.raises(ResumeRefused) as refused:
            await bench.call(graph, "invoke", Command(resume=raw), thread())
        assert "raw" not in str(refused.value)
        (event,) = await bench.call(adapter, "pending")
        assert event.payload["order"] == note
        result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": note})

    assert result["log"] == ["first", "second"]


async def test_a_receipt_carried_over_from_another_thread_is_refused(bench: Bench) -> None:
    graph, adapter, token, bodies = await paused(bench)
    await bench.call(adapter, "invoke", token, {"approved": True})
    ((receipt, response),) = bench.rows("SELECT receipt, response FROM interrupt_consumed_tokens")
    await bench.call(graph, "invoke", {"log": []}, thread("t2"))
    (interrupt,) = (await bench.call(graph, "get_state", thread("t2"))).interrupts
    stolen = {"answers": [{"response": response, "receipt": json.loads(receipt)}]}

    with pytest.raises(ResumeRefused, match="another task"):
        await bench.call(graph, "invoke", Command(resume={interrupt.id: stolen}), thread("t2"))

    assert len(bodies) == 1
    assert [state for (state,) in bench.rows("SELECT state FROM interrupt_pauses WHERE thread_id='t2'")] == ["pending"]


class Anything(BaseModel):
    value: Any = None


ANSWERS: list[Any] = [
    {},
    {"value": None},
    {"value": False},
    {"value": 0},
    {"value": ""},
    {"value": []},
    {"value": {}},
    {"value": {"0123456789abcdef0123456789abcdef": 1}},
    {"value": "Grüße, 世界 🎉 \x00 \n"},
    {"value": 12345678901234567890123},
    {"value": 1.5e300},
    {"value": "x" * 1_000_000},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer)[:40])
async def test_any_answer_that_the_schema_allows_arrives_as_it_was_sent(bench: Bench, answer: Any) -> None:
    point = bench.interrupts.register_interrupt("anything", payload_schema=Anything, response_schema=Anything)
    arrived: list[Any] = []

    def node(state: State) -> dict[str, Any]:
        arrived.append(point.pause(Anything(value="?")).model_dump(mode="json", exclude_unset=True))
        return {"log": ["done"]}

    graph, adapter = bench.compile(StateGraph(State).add_node("node", node).add_edge(START, "node"))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    await bench.call(adapter, "invoke", event.pause_token, answer)

    assert arrived == [answer]


async def test_the_same_key_with_the_same_answer_gives_the_same_receipt(bench: Bench) -> None:
    _, adapter, token, _ = await paused(bench)
    first = await bench.call(adapter, "answer", token, {"approved": True}, actor="ann", idempotency_key="k1")

    assert await bench.call(adapter, "answer", token, {"approved": True}, actor="ann", idempotency_key="k1") == first
    for changed in ({"idempotency_key": "k2"}, {}):
        with pytest.raises(TokenConsumed):
            await bench.call(adapter, "answer", token, {"approved": True}, **changed)
    with pytest.raises(TokenConsumed):
        await bench.call(adapter, "answer", token, {"approved": False}, idempotency_key="k1")


async def test_a_validator_refuses_an_answer_against_its_payload_and_the_token_still_works(bench: Bench) -> None:
    def check(decision: Decision, refund: Refund) -> None:
        if decision.approved and refund.amount > 50 and not decision.note:
            raise ValueError("a large refund needs a note")

    _, adapter, token, bodies = await paused(bench, validate_response=check)
    with pytest.raises(ResponseInvalid, match="a large refund needs a note") as refused:
        await bench.call(adapter, "answer", token, {"approved": True})
    assert refused.value.errors == [{"type": "value_error", "loc": (), "msg": "a large refund needs a note"}]

    await bench.call(adapter, "invoke", token, {"approved": True, "note": "checked"})
    assert [decision.note for decision in bodies] == ["checked"]


async def test_a_pause_row_edited_by_hand_is_refused_and_recorded(bench: Bench) -> None:
    _, adapter, token, _ = await paused(bench)
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql('UPDATE interrupt_pauses SET payload=\'{"order":"A1","amount":1}\'')
    engine.dispose()

    with pytest.raises(StoreError, match="changed in the database"):
        await bench.call(adapter, "answer", token, {"approved": True})
    assert await bench.call(adapter, "pending") == []
    assert bench.rows("SELECT body FROM interrupt_events WHERE type='interrupt_refused'") == [
        ('{"code":"row_altered","count":1}',)
    ]


async def test_an_answer_edited_in_the_database_is_not_delivered(bench: Bench) -> None:
    _, adapter, token, bodies = await paused(bench)
    await bench.call(adapter, "answer", token, {"approved": False})
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE interrupt_consumed_tokens SET response='{\"approved\":true}'")
    engine.dispose()

    with pytest.raises(StoreError, match="changed in the database"):
        await bench.call(adapter, "deliver", "t1")
    assert bodies == []


async def test_a_deleted_thread_has_nothing_to_answer(bench: Bench) -> None:
    _, adapter, token, _ = await paused(bench)
    await bench.call(bench.saver, "delete_thread", "t1")

    with pytest.raises(CheckpointMissing):
        await bench.call(adapter, "answer", token, {"approved": True})
    with pytest.raises(CheckpointMissing):
        await bench.call(adapter, "deliver", "t1")


async def test_deleting_a_thread_through_the_wrapped_saver_kills_its_tokens(bench: Bench) -> None:
    graph, adapter, token, _ = await paused(bench)
    await bench.call(graph.checkpointer, "delete_thread", "t1")

    with pytest.raises(TokenConsumed) as refused:
        await bench.call(adapter, "answer", token, {"approved": True})
    assert refused.value.state == "revoked"
    assert await bench.call(adapter, "pending") == []


@pytest.mark.parametrize("key", ["tenant_id", "sub_tenant_id", "namespace", "checkpoint_id", "checkpoint_ns"])
async def test_a_delivery_takes_neither_a_tenant_nor_a_checkpoint_from_its_caller(bench: Bench, key: str) -> None:
    _, adapter, token, bodies = await paused(bench)
    config = {"configurable": {key: "x"}}

    with pytest.raises(InterruptError, match=key):
        await bench.call(adapter, "invoke", token, {"approved": True}, config=config)
    with pytest.raises(InterruptError, match=key):
        await bench.call(adapter, "deliver", "t1", config=config)

    assert bench.states() == ["pending"]
    assert bodies == []


async def test_a_superseded_token_says_so(bench: Bench) -> None:
    graph, adapter, token, _ = await paused(bench)
    await bench.call(graph, "invoke", {"log": ["again"]}, thread())

    with pytest.raises(PauseSuperseded):
        await bench.call(adapter, "answer", token, {"approved": True})
    assert (await bench.call(adapter, "inspect", token)).state == "superseded"


async def test_inspecting_shows_the_question_and_changes_nothing(bench: Bench) -> None:
    _, adapter, token, _ = await paused(bench, metadata={"team": "billing"})
    before = bench.rows("SELECT count(*) FROM interrupt_events")

    view = await bench.call(adapter, "inspect", token)

    assert (view.name, view.payload, view.metadata, view.state) == (
        "approval",
        {"order": "A1", "amount": 90},
        {"team": "billing"},
        "pending",
    )
    assert view.response_schema["required"] == ["approved"]
    assert bench.rows("SELECT count(*) FROM interrupt_events") == before
    await bench.call(adapter, "invoke", token, {"approved": True})
    assert (await bench.call(adapter, "inspect", token)).state == "applied"
