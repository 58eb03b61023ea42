"""What an operator sees and does: failed threads, new tokens, tokens that are killed; each of the own scope only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from symfonic_interrupts.contrib.fastapi import interrupt_router
from symfonic_interrupts.errors import RegistrationError
from tests.http.conftest import Desk
from tests.http.service import MARK, caller
from tests.http.test_problems import check


async def operated(desk: Desk) -> Desk:
    """The desk with an operator: whoever is signed in."""
    await desk.serve(operator=caller)
    return desk


def interrupt_ids(desk: Desk) -> list[str]:
    return [row[0] for row in desk.bench.rows("SELECT interrupt_id FROM interrupt_pauses ORDER BY id")]


async def post(client: httpx.AsyncClient, interrupt_id: str, what: str, **body: Any) -> httpx.Response:
    return await client.post(f"/refunds/pending/{interrupt_id}/{what}", json=body)


async def test_failed_threads_are_listed_for_their_scope_without_what_was_raised(desk: Desk) -> None:
    globex = await desk.client_of("globex")
    for order in ("A-1", "A-2"):
        await desk.answer(await desk.ask(order, then="fail"))
    await desk.ask("A-3")
    desk.bench.clock.move(timedelta(minutes=1))

    replies = [
        await desk.client.get(f"/refunds/{path}") for path in ("failed", "pending?state=failed", "failed?limit=1")
    ]

    pages = [reply.json()["items"] for reply in replies]
    assert [[failed["thread_id"] for failed in page] for page in pages] == [["A-1", "A-2"], ["A-1", "A-2"], ["A-1"]]
    assert {frozenset(failed) for page in pages for failed in page} == {
        frozenset(("thread_id", "at", "node", "error_type"))
    }
    assert (await globex.get("/refunds/failed")).json() == {"items": []}
    assert MARK not in replies[0].text
    check(await desk.client.get("/refunds/pending?state=answered"), 422, "request_invalid")


async def test_a_new_token_is_given_for_a_pause_and_the_old_one_is_dead(desk: Desk) -> None:
    await operated(desk)
    old = await desk.ask("A-1")
    (interrupt_id,) = interrupt_ids(desk)

    reply = await post(desk.client, interrupt_id, "reissue", ttl_seconds=600)

    assert reply.status_code == 200, reply.text
    new = reply.json()["pause_token"]
    check(await desk.answer(old), 409, "token_consumed")
    assert (await desk.answer(new)).status_code == 200
    check(await post(desk.client, interrupt_id, "reissue"), 409, "token_consumed")


async def test_a_new_token_needs_no_body(desk: Desk) -> None:
    await operated(desk)
    await desk.ask("A-1")

    reply = await desk.client.post(f"/refunds/pending/{interrupt_ids(desk)[0]}/reissue")

    assert (await desk.answer(reply.json()["pause_token"])).status_code == 200


async def test_a_token_is_killed_with_a_reason(desk: Desk) -> None:
    await operated(desk)
    token = await desk.ask("A-1")
    (interrupt_id,) = interrupt_ids(desk)

    without = await post(desk.client, interrupt_id, "revoke")
    blank = await post(desk.client, interrupt_id, "revoke", reason="  ")
    reply = await post(desk.client, interrupt_id, "revoke", reason="sent to the wrong person")

    assert [check(one, 422, "request_invalid")["errors"][0]["loc"] for one in (without, blank)] == [
        ["body", "reason"]
    ] * 2
    assert (reply.status_code, reply.content, reply.headers["cache-control"]) == (204, b"", "no-store")
    check(await desk.answer(token), 409, "token_consumed")
    assert desk.states() == ["revoked"]


@pytest.mark.parametrize("what", ["reissue", "revoke"])
async def test_anothers_pause_and_one_that_there_is_not_look_alike(desk: Desk, what: str) -> None:
    await operated(desk)
    await desk.start("G-1", tenant="globex")
    body = {"reason": "mine now"} if what == "revoke" else {}

    replies = [await post(desk.client, one, what, **body) for one in (*interrupt_ids(desk), "i-000000000000")]

    documents = [check(reply, 404, "unknown_interrupt") for reply in replies]
    assert documents[0] == documents[1]
    assert replies[0].headers == replies[1].headers
    assert desk.states() == ["pending"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": "long"}, "ttl_seconds"),
        ({"ttl_seconds": 1e30}, "ttl_seconds"),
    ],
)
async def test_a_lifetime_that_cannot_be_is_refused(one_desk: Desk, body: dict[str, Any], field: str) -> None:
    await operated(one_desk)
    await one_desk.ask("A-1")

    document = check(await post(one_desk.client, interrupt_ids(one_desk)[0], "reissue", **body), 422, "request_invalid")

    assert [error["loc"] for error in document["errors"]] == [["body", field]]


async def test_a_lifetime_beyond_the_longest_is_the_clients_error(one_desk: Desk) -> None:
    await operated(one_desk)
    await one_desk.ask("A-1")

    reply = await post(one_desk.client, interrupt_ids(one_desk)[0], "reissue", ttl_seconds=31 * 86400)

    document = check(reply, 422, "request_invalid")
    assert [error["loc"] for error in document["errors"]] == [["body", "ttl_seconds"]]


async def test_without_an_operator_there_are_no_such_routes(one_desk: Desk) -> None:
    await one_desk.ask("A-1")

    for what in ("reissue", "revoke"):
        assert (await post(one_desk.client, interrupt_ids(one_desk)[0], what)).status_code == 404
    with pytest.raises(RegistrationError, match="operator must be a FastAPI dependency"):
        interrupt_router(one_desk.adapter, identity=caller, operator="kim")  # type: ignore[arg-type]
