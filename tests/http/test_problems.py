"""Whatever is refused is a problem document: its status, its code, nothing of what was sent, and nothing stored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import Header, Request
from langgraph.checkpoint.memory import InMemorySaver

from symfonic_interrupts import FrameworkTenantScope, Interrupts, ResumeAdapter
from symfonic_interrupts.contrib.fastapi import Identity, interrupt_router
from symfonic_interrupts.contrib.fastapi.identity import caller
from symfonic_interrupts.errors import RegistrationError
from tests.http.conftest import YES, Desk
from tests.http.service import MARK, Service, client_of

RESUME = "/refunds/resume/approval"


def check(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The document of a reply that is a problem of this code."""
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["cache-control"] == "no-store"
    document: dict[str, Any] = reply.json()
    assert (reply.status_code, document["status"], document["code"]) == (status, status, code), document
    assert document["type"] == f"urn:symfonic-interrupts:problem:{code}"
    assert document["title"]
    assert document["detail"]
    assert MARK not in reply.text
    return document


async def consumed(desk: Desk, token: str) -> httpx.Response:
    await desk.answer(token)
    return await desk.answer(token)


async def superseded(desk: Desk, token: str) -> httpx.Response:
    await desk.graph.aupdate_state({"configurable": {"thread_id": "A-1"}}, {"amount": 9})
    return await desk.answer(token)


async def expired(desk: Desk, token: str) -> httpx.Response:
    desk.bench.clock.move(timedelta(hours=25))
    return await desk.answer(token)


async def without_checkpoint(desk: Desk, token: str) -> httpx.Response:
    await desk.bench.saver.adelete_thread("A-1")
    return await desk.answer(token)


async def not_durable_yet(desk: Desk, token: str) -> httpx.Response:
    checkpoints: Any = desk.bench.saver
    await checkpoints.conn.execute("DELETE FROM writes")
    return await desk.answer(token)


async def from_another_tenant(desk: Desk, token: str) -> httpx.Response:
    globex = await desk.client_of("globex")
    return await globex.post(RESUME, json={"token": token, "response": YES})


async def at_another_point(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, name="shared")


async def at_a_point_that_is_none(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, name="nobody_knows")


async def with_a_bad_answer(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, {"approved": MARK, MARK: MARK})


async def with_a_bad_answer_and_a_bad_union(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, [MARK])


async def forged(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token[:-4] + "AAAA")


async def forged_for_another_point(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token[:-4] + "AAAA", name="shared")


async def that_is_no_token(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(MARK)


async def missing(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, json={"response": YES})


async def with_other_credentials(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, json={"response": YES}, headers={"authorization": "Basic bWU6bWU="})


async def not_signed_in(desk: Desk, token: str) -> httpx.Response:
    async with client_of(desk.app) as stranger:
        return await stranger.post(RESUME, json={"token": token, "response": YES})


async def not_allowed(desk: Desk, token: str) -> httpx.Response:
    banned = await desk.client_of("banned")
    return await banned.post(RESUME, json={"token": token, "response": YES})


async def without_a_tenant(desk: Desk, token: str) -> httpx.Response:
    nobody = await desk.client_of("")
    return await nobody.post(RESUME, json={"token": token, "response": YES})


async def in_the_query(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(f"{RESUME}?pause_token={token}", json={"response": YES})


async def in_the_query_under_another_name(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(f"{RESUME}?t={token}", json={"token": token, "response": YES})


async def in_the_path(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(f"/refunds/resume/{token}", json={"response": YES})


async def without_an_answer(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, json={"token": token})


async def with_an_unknown_field(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, json={"token": token, "response": YES, MARK: MARK})


async def that_is_a_number(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, json={"token": 7, "response": YES})


async def with_a_bad_key(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, **{"idempotency-key": "k" * 256})


async def with_too_large_a_body(desk: Desk, token: str) -> httpx.Response:
    return await desk.answer(token, {"approved": True, "note": "x" * 300_000})


async def with_a_body_of_unknown_length(desk: Desk, token: str) -> httpx.Response:
    async def body() -> Any:
        for _ in range(100):
            yield b" " * 100_000

    return await desk.client.post(RESUME, content=body(), headers={"content-type": "application/json"})


async def with_an_answer_over_the_limit(desk: Desk, token: str) -> httpx.Response:
    await desk.serve(max_request_bytes=5_000_000)
    return await desk.answer(token, {"approved": True, "note": "x" * (4 * 1024 * 1024)})


async def as_a_form(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.post(RESUME, data={"token": token})


async def by_get(desk: Desk, token: str) -> httpx.Response:
    return await desk.client.get(RESUME)


Case = Callable[[Desk, str], Awaitable[httpx.Response]]
CASES: list[tuple[int, str, Case]] = [
    (400, "name_mismatch", at_another_point),
    (400, "name_mismatch", at_a_point_that_is_none),
    (400, "token_in_url", in_the_query),
    (400, "token_in_url", in_the_query_under_another_name),
    (400, "token_in_url", in_the_path),
    (400, "scope_required", without_a_tenant),
    (401, "token_invalid", forged),
    (401, "token_invalid", forged_for_another_point),
    (401, "token_invalid", that_is_no_token),
    (401, "token_missing", missing),
    (401, "token_missing", with_other_credentials),
    (401, "not_authenticated", not_signed_in),
    (403, "not_allowed", not_allowed),
    (403, "scope_mismatch", from_another_tenant),
    (404, "checkpoint_missing", without_checkpoint),
    (405, "method_not_allowed", by_get),
    (409, "token_consumed", consumed),
    (409, "pause_superseded", superseded),
    (410, "token_expired", expired),
    (413, "body_too_large", with_too_large_a_body),
    (413, "body_too_large", with_a_body_of_unknown_length),
    (415, "media_type_unsupported", as_a_form),
    (422, "response_invalid", with_a_bad_answer),
    (422, "response_invalid", with_a_bad_answer_and_a_bad_union),
    (422, "response_invalid", with_an_answer_over_the_limit),
    (422, "request_invalid", without_an_answer),
    (422, "request_invalid", with_an_unknown_field),
    (422, "request_invalid", that_is_a_number),
    (422, "request_invalid", with_a_bad_key),
    (425, "pause_not_ready", not_durable_yet),
]


@pytest.mark.parametrize(("status", "code", "case"), CASES, ids=[case.__name__ for *_, case in CASES])
async def test_a_token_is_refused(one_desk: Desk, status: int, code: str, case: Case) -> None:
    token = await one_desk.ask("A-1")

    document = check(await case(one_desk, token), status, code)

    assert token not in json.dumps(document)
    assert ("errors" in document) == (code == "request_invalid" or case in WITH_ERRORS)
    assert one_desk.service.runs == ({"A-1": 1} if code == "token_consumed" else {})


WITH_ERRORS = (with_a_bad_answer, with_a_bad_answer_and_a_bad_union)


async def test_a_refused_answer_does_not_spend_the_token(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")

    for case in (at_another_point, forged, in_the_query, from_another_tenant, with_a_bad_answer, with_too_large_a_body):
        await case(one_desk, token)

    assert (await one_desk.answer(token)).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"NaN",
        b'{"token": "t", "response": NaN}',
        b'{"token": "t", "token": "t", "response": 1}',
        b'{"token": "t", "response": {"a": 1, "a": 2}}',
        b'{"token": "t", "response": "\xff"}',
        b'\xef\xbb\xbf{"token": "t", "response": 1}',
        b'{"token": "t", "response": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"token": "t", "response": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "cut", "list", "text", "nan", "inner nan", "twice", "inner twice", "latin", "bom", "deep", "long"],
)
async def test_a_body_that_is_no_json_object_is_malformed(one_desk: Desk, body: bytes) -> None:
    headers = {"content-type": "application/json"}

    reply = await one_desk.client.post(RESUME, content=body, headers=headers)

    check(reply, 422 if body == b"" else 400, "request_invalid" if body == b"" else "body_malformed")


@pytest.mark.parametrize(
    "response",
    [
        '"\\ud800"',
        '{"approved": true, "note": "\\ud800"}',
        '{"approved": 1e999}',
        "null",
        "[" * 90 + "]" * 90,
        "-" + "9" * 400,
    ],
    ids=["surrogate", "inner surrogate", "infinite", "null", "nested", "large"],
)
async def test_json_that_python_can_read_and_no_answer_can_hold_is_refused(one_desk: Desk, response: str) -> None:
    token = await one_desk.ask("A-1")
    body = f'{{"token": "{token}", "response": {response}}}'

    reply = await one_desk.client.post(RESUME, content=body, headers={"content-type": "application/json"})

    check(reply, 422, "response_invalid")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        f"limit={MARK}",
        f"after={MARK}",
        f"name={MARK}",
        "thread_id=",
        "thread_id=%00",
        f"include_sub_scopes={MARK}",
    ],
)
async def test_a_query_that_does_not_fit_is_invalid_and_not_echoed(one_desk: Desk, query: str) -> None:
    document = check(await one_desk.client.get(f"/refunds/pending?{query}"), 422, "request_invalid")

    (error,) = document["errors"]
    assert error.keys() == {"type", "loc", "msg"}
    assert error["loc"] == ["query", query.partition("=")[0]]


async def test_an_unknown_pause_and_another_tenants_cannot_be_told_apart(one_desk: Desk) -> None:
    await one_desk.start("A-1", tenant="globex")
    (theirs,) = one_desk.bench.rows("SELECT interrupt_id FROM interrupt_pauses")

    documents = []
    for interrupt_id in (theirs[0], "i-000000000000"):
        documents.append(check(await one_desk.client.get(f"/refunds/pending/{interrupt_id}"), 404, "unknown_interrupt"))

    assert documents[0] == documents[1]
    check(await one_desk.client.get(f"/refunds/pending/{MARK}"), 422, "request_invalid")


async def test_another_tenants_point_is_not_named(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")

    document = check(await from_another_tenant(one_desk, token), 403, "scope_mismatch")

    assert "approval" not in json.dumps(document)


async def test_each_status_has_its_headers(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")

    assert (await missing(one_desk, token)).headers["www-authenticate"] == "Bearer"
    assert (await forged(one_desk, token)).headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert (await not_signed_in(one_desk, token)).headers["www-authenticate"] == "Bearer"
    assert (await by_get(one_desk, token)).headers["allow"] == "POST"
    assert (await not_durable_yet(one_desk, token)).headers["retry-after"] == "1"


async def test_an_expired_token_says_when_it_ended(one_desk: Desk) -> None:
    one_desk.bench.clock.now = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    token = await one_desk.ask("A-1")

    document = check(await expired(one_desk, token), 410, "token_expired")

    assert document["expired_at"] == "2030-01-03T03:04:05Z"


async def test_a_store_that_is_gone_is_503(one_desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    token = await one_desk.ask("A-1")
    engine = sa.create_engine(one_desk.bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE interrupt_pauses")
    engine.dispose()

    replies = [
        await one_desk.answer(token),
        await one_desk.client.get("/refunds/pending"),
        await one_desk.client.get("/refunds/pending/i-000000000000"),
        await one_desk.client.post("/refunds/inspect", json={"token": token}),
    ]

    for reply in replies:
        document = check(reply, 503, "store_error")
        assert document["detail"] == "the pause store cannot be used at present; try again"
        assert reply.headers["retry-after"] == "5"
    assert caplog.text.count("request failed: store_error") == 4


async def test_a_dependency_that_identifies_nobody_is_the_servers_error(
    one_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    one_desk.app.include_router(interrupt_router(one_desk.adapter, identity=lambda: {"tenant": MARK}), prefix="/wrong")

    document = check(await one_desk.client.get("/wrong/pending"), 500, "registration_error")

    assert document["detail"] == "the server is not set up for this request; its log says more"
    assert "identity must return an Identity, not dict" in caplog.text


async def test_a_request_without_what_the_identity_needs_is_refused_and_not_run(one_desk: Desk) -> None:
    def signed_in(x_session: str = Header()) -> Identity:
        return Identity(FrameworkTenantScope(x_session))

    router = interrupt_router(one_desk.adapter, identity=signed_in, operator=signed_in)
    one_desk.app.include_router(router, prefix="/signed")
    path = "/signed/pending/i-000000000000"
    replies = [
        await one_desk.client.get("/signed/pending"),
        await one_desk.client.get("/signed/events"),
        await one_desk.client.post("/signed/resume/approval", json={"token": "t", "response": {}}),
        await one_desk.client.post(f"{path}/reissue"),
        await one_desk.client.post(f"{path}/revoke", json={"reason": "why"}),
    ]

    for reply in replies:
        errors = check(reply, 422, "request_invalid")["errors"]
        assert [(error["type"], error["loc"]) for error in errors] == [("missing", ["header", "x-session"])]


def test_a_route_that_does_not_ask_who_is_calling_has_no_caller() -> None:
    with pytest.raises(AttributeError, match="symfonic_interrupts_caller"):
        caller(Request({"type": "http"}))


def test_a_router_needs_an_identity_an_adapter_and_a_mode(one_adapter: ResumeAdapter) -> None:
    with pytest.raises(TypeError, match="identity"):
        interrupt_router(one_adapter)  # type: ignore[call-arg]
    with pytest.raises(RegistrationError, match="identity must be a FastAPI dependency"):
        interrupt_router(one_adapter, identity=None)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="adapter must be"):
        interrupt_router(object(), identity=dict)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="mode must be one of auto, async, sync"):
        interrupt_router(one_adapter, identity=dict, mode="both")  # type: ignore[arg-type]


@pytest.fixture
def one_adapter(tmp_path: Path) -> Iterator[ResumeAdapter]:
    """An adapter of some graph."""
    with Interrupts.local(tmp_path / "local.db") as interrupts:
        builder = Service(interrupts).build()
        yield interrupts.resume_adapter(builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver())))
