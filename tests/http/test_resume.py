"""POST /resume/{name}: three ways out, each in both modes and on both databases."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest

from tests.http.conftest import YES, Desk, messages
from tests.http.service import MARK

STREAM = {"accept": "text/event-stream"}
LATER = {"prefer": "respond-async"}


async def test_an_answer_returns_what_the_graph_returned(desk: Desk) -> None:
    token = await desk.ask("A-1")

    reply = await desk.answer(token)

    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
    told = reply.json()
    assert told["output"] == {"order": "A-1", "amount": 5, "result": "paid"}
    assert (told["name"], told["thread_id"], told["open"]) == ("approval", "A-1", [])
    assert desk.states() == ["applied"]


async def test_the_next_question_comes_with_the_answer_to_the_first(desk: Desk) -> None:
    token = await desk.ask("A-1", then="ask")

    first = (await desk.answer(token)).json()
    (question,) = first["open"]
    second = (await desk.answer(question["pause_token"])).json()

    assert first["output"] == {"order": "A-1", "amount": 5, "then": "ask"}
    assert question["payload"] == {"order": "A-1", "amount": 6}
    assert second["output"]["result"] == "paid"
    assert desk.service.runs == {"A-1": 1}


async def test_a_stream_tells_of_the_answer_then_of_the_run(desk: Desk) -> None:
    token = await desk.ask("A-1", then="ask")

    reply = await desk.answer(token, **STREAM)

    assert reply.headers["content-type"].startswith("text/event-stream")
    told = messages(reply.text)
    assert [kind for kind, _ in told] == ["accepted", "updates", "interrupt_resolved", "interrupt", "done"]
    question = told[-1][1]["open"][0]
    assert told[3][1]["pause_token"] == question["pause_token"]
    last = messages((await desk.answer(question["pause_token"], **STREAM)).text)
    assert sorted(kind for kind, _ in last) == ["accepted", "done", "interrupt_resolved", "updates"]
    assert ("updates", {"review": {"result": "paid"}}) in last
    assert desk.states() == ["applied", "applied"]


async def test_a_client_that_does_not_want_to_wait_gets_202_and_the_run_goes_on(desk: Desk) -> None:
    token = await desk.ask("A-1", then="wait")

    reply = await desk.answer(token, **LATER)
    while_waiting = desk.states()
    desk.service.gate.set()
    await desk.settled()

    assert (reply.status_code, reply.headers["preference-applied"]) == (202, "respond-async")
    assert reply.json().keys() == {"interrupt_id", "name", "thread_id", "answered_at"}
    assert (while_waiting, desk.states()) == (["answered"], ["applied"])


@pytest.mark.parametrize("way", [{}, STREAM], ids=["json", "stream"])
async def test_a_client_that_goes_away_loses_nothing(desk: Desk, way: dict[str, str]) -> None:
    token = await desk.ask("A-1", then="wait")

    request = asyncio.create_task(desk.answer(token, **way))
    assert await asyncio.to_thread(desk.service.waiting.wait, 20)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    while_waiting = desk.states()
    desk.service.gate.set()
    await desk.settled()

    assert (while_waiting, desk.states()) == (["answered"], ["applied"])
    assert desk.service.runs == {"A-1": 1}


@pytest.mark.parametrize("way", [{}, STREAM, LATER], ids=["json", "stream", "later"])
async def test_what_can_be_refused_is_refused_with_its_status_whatever_the_way(desk: Desk, way: dict[str, str]) -> None:
    token = await desk.ask("A-1")

    wrong = await desk.answer(token, {"approved": "perhaps"}, **way)
    await desk.answer(token)
    again = await desk.answer(token, **way)

    assert [reply.headers["content-type"] for reply in (wrong, again)] == ["application/problem+json"] * 2
    assert (wrong.status_code, wrong.json()["code"]) == (422, "response_invalid")
    assert (again.status_code, again.json()["code"], again.json()["state"]) == (409, "token_consumed", "applied")


async def test_a_graph_that_fails_is_424_and_the_answer_stays(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    token = await desk.ask("A-1", then="fail")

    reply = await desk.answer(token)

    told = reply.json()
    assert (reply.status_code, told["code"], told["answer_stored"]) == (424, "graph_failed", True)
    assert (told["thread_id"], told["detail"]) == (
        "A-1",
        "the answer is stored, but the graph failed; another delivery of the thread tries again",
    )
    assert MARK not in reply.text + "".join(record.getMessage() for record in caplog.records)
    assert f"delivery of {told['interrupt_id']} failed: ValueError in service.py:" in caplog.text
    (failure,) = [record for record in caplog.records if record.name == "symfonic_interrupts.delivery"]
    assert failure.getMessage() == "the delivery of thread 'A-1' failed: ValueError"
    assert failure.exc_info is not None
    assert MARK in str(failure.exc_info[1])  # the application's own text, in the application's own traceback
    with pytest.raises(ValueError, match=MARK):
        await desk.bench.call(desk.adapter, "deliver", "A-1")
    assert (desk.states(), desk.service.runs) == (["answered"], {"A-1": 2})


async def test_a_graph_that_fails_in_a_stream_ends_it_with_the_problem(desk: Desk) -> None:
    token = await desk.ask("A-1", then="fail")

    reply = await desk.answer(token, **STREAM)

    told = messages(reply.text)
    assert reply.status_code == 200
    assert (told[0][0], told[-1][0]) == ("accepted", "error")
    assert (told[-1][1]["status"], told[-1][1]["code"], told[-1][1]["answer_stored"]) == (424, "graph_failed", True)
    assert MARK not in reply.text


async def test_a_graph_that_fails_in_the_background_is_logged_and_listed(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    token = await desk.ask("A-1", then="fail")

    reply = await desk.answer(token, **LATER)
    await desk.settled()

    assert reply.status_code == 202
    assert "failed: ValueError in service.py:" in caplog.text
    assert MARK not in "".join(record.getMessage() for record in caplog.records)
    assert [failed.thread_id for failed in await desk.bench.call(desk.adapter, "failed")] == ["A-1"]
    assert desk.states() == ["answered"]


async def test_an_answer_whose_thread_another_worker_has_is_kept_for_it(desk: Desk) -> None:
    tokens = [await desk.ask(order) for order in ("A-1", "A-2", "A-3")]
    with desk.held("A-1", "A-2", "A-3"):
        reply = await desk.answer(tokens[0])
        stream = messages((await desk.answer(tokens[1], **STREAM)).text)
        later = await desk.answer(tokens[2], **LATER)
        await desk.settled()

    assert (reply.status_code, reply.headers["retry-after"]) == (429, "5")
    assert (reply.json()["code"], reply.json()["answer_stored"]) == ("thread_busy", True)
    assert (stream[-1][0], stream[-1][1]["code"]) == ("error", "thread_busy")
    assert (later.status_code, desk.states()) == (202, ["answered"] * 3)
    await desk.bench.call(desk.adapter, "recover")
    assert (desk.states(), desk.service.runs) == (["applied"] * 3, {"A-1": 1, "A-2": 1, "A-3": 1})


async def test_an_answer_that_the_graph_did_not_use_is_409(desk: Desk) -> None:
    tokens = [await desk.ask(order, then="forget") for order in ("A-1", "A-2")]

    reply = await desk.answer(tokens[0])
    stream = messages((await desk.answer(tokens[1], **STREAM)).text)

    assert (reply.status_code, reply.json()["code"]) == (409, "answer_unused")
    assert (stream[-1][0], stream[-1][1]["code"]) == ("error", "answer_unused")
    assert desk.states() == ["unused", "unused"]


async def test_the_same_key_and_answer_again_is_the_same_answer(desk: Desk) -> None:
    token = await desk.ask("A-1")

    first = await desk.answer(token, **{"idempotency-key": "k-1"})
    again = await desk.answer(token, **{"idempotency-key": '"k-1"'})
    other_key = await desk.answer(token, **{"idempotency-key": "k-2"})
    other_answer = await desk.answer(token, {"approved": False}, **{"idempotency-key": "k-1"})

    assert first.json() == again.json()
    assert [reply.status_code for reply in (first, again, other_key, other_answer)] == [200, 200, 409, 409]
    assert desk.service.runs == {"A-1": 1}


async def test_a_token_may_come_as_bearer(desk: Desk) -> None:
    token = await desk.ask("A-1")

    bearer = {"authorization": f"bearer {token}"}
    shown = await desk.client.post("/refunds/inspect", headers=bearer)
    reply = await desk.client.post("/refunds/resume/approval", json={"response": YES}, headers=bearer)

    assert (shown.status_code, shown.json()["payload"]) == (200, {"order": "A-1", "amount": 5})
    assert (reply.status_code, reply.json()["output"]["result"]) == (200, "paid")


async def test_a_token_in_the_body_leaves_the_authorization_header_to_the_application(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")

    reply = await one_desk.answer(token, authorization="Bearer the.session.token")

    assert reply.status_code == 200


async def test_what_has_no_json_form_is_shown_all_the_same(desk: Desk) -> None:
    tokens = [await desk.ask(order, then="odd") for order in ("A-1", "A-2")]

    reply = await desk.answer(tokens[0])
    stream = messages((await desk.answer(tokens[1], **STREAM)).text)

    output = reply.json()["output"]["odd"]
    assert output["message"]["content"] == "hello"
    del output["message"]
    assert output == {
        "at": "2026-01-02T03:04:05Z",
        "money": "1.50",
        "set": [7],
        "nan": None,
        "3": "a key that is no text",
    }
    custom = next(data for kind, data in stream if kind == "custom")
    assert custom == {
        "box": {"content": {"order": "A", "amount": 1}},
        "odd": "<Odd>",
        "big": "<int>",
        "text": "half a pair: ?",
    }


async def test_an_answer_from_another_scope_counts_but_is_not_told_the_output(desk: Desk) -> None:
    other = await desk.client_of("globex", **{"x-actor": "root"})
    tokens = [await desk.ask(order, point="shared", then="ask") for order in ("A-1", "A-2")]

    told: list[httpx.Response] = []
    for token in tokens:
        body = {"token": token, "response": YES}
        told.append(await other.post("/refunds/resume/shared", json=body, headers=STREAM if told else {}))

    reply = told[0].json()
    assert (told[0].status_code, reply["output"], reply["open"]) == (200, None, [])
    assert [kind for kind, _ in messages(told[1].text)] == ["accepted", "done"]
    assert messages(told[1].text)[1][1]["open"] == []
    actors: Any = desk.bench.rows("SELECT actor FROM interrupt_consumed_tokens")
    assert actors == [("root",), ("root",)]


async def test_a_service_may_tell_the_output_across_scopes(one_desk: Desk) -> None:
    await one_desk.serve(cross_scope_output=True)
    other = await one_desk.client_of("globex")
    token = await one_desk.ask("A-1", point="shared")

    reply = await other.post("/refunds/resume/shared", json={"token": token, "response": YES})

    assert reply.json()["output"]["result"] == "paid"


async def test_no_log_line_of_any_level_has_a_token_or_an_answer(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [await desk.ask(order, then="ask") for order in ("A-1", "A-2", "A-3")]

    told = [
        await desk.answer(token, {"approved": True, "note": MARK}, **way)
        for token, way in zip(tokens, WAYS, strict=True)
    ]
    await desk.settled()

    assert [reply.status_code for reply in told] == [200, 200, 202]
    assert "eyJ" not in caplog.text
    drivers = ("aiosqlite",)  # they write the statements that they are given
    assert MARK not in "".join(record.getMessage() for record in caplog.records if record.name not in drivers)


WAYS: list[dict[str, str]] = [{}, STREAM, LATER]


async def test_run_kwargs_reach_the_graph(one_desk: Desk) -> None:
    seen = []

    def kwargs(thread_id: str, identity: Any) -> dict[str, Any]:
        seen.append((thread_id, identity.scope.tenant_id))
        return {"config": {"tags": ["by-http"]}}

    await one_desk.serve(run_kwargs=kwargs)
    token = await one_desk.ask("A-1")

    assert (await one_desk.answer(token)).status_code == 200
    assert seen == [("A-1", "acme")]


async def test_run_kwargs_that_name_a_tenant_are_the_servers_error(
    one_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await one_desk.serve(run_kwargs=lambda thread_id, identity: {"config": {"configurable": {"tenant_id": "globex"}}})
    token = await one_desk.ask("A-1")

    reply = await one_desk.answer(token)

    assert (reply.status_code, reply.json()["code"], reply.json()["answer_stored"]) == (500, "registration_error", True)
    assert reply.json()["detail"] == "the server is not set up for this request; its log says more"
    assert (
        "request failed: registration_error: run_kwargs: config['configurable']['tenant_id'] must not be" in caplog.text
    )
    assert one_desk.states() == ["answered"]
