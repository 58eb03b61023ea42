"""GET and POST /inspect: what is shown, to whom, page by page; and that looking changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import httpx
import sqlalchemy as sa

from symfonic_interrupts.store.schema import metadata
from tests.http.conftest import Desk

ORDERS = [f"A-{number}" for number in range(1, 8)]


async def test_open_pauses_come_newest_first_page_by_page(desk: Desk) -> None:
    for order in ORDERS:
        await desk.start(order)

    pages = []
    address = "/refunds/pending?limit=3"
    while address:
        page = (await desk.client.get(address)).json()
        pages.append([item["payload"]["order"] for item in page["items"]])
        address = page["next"] and urljoin(address, page["next"])

    assert pages == [["A-7", "A-6", "A-5"], ["A-4", "A-3", "A-2"], ["A-1"], []]


async def test_the_next_page_keeps_what_was_asked_for(one_desk: Desk) -> None:
    for order in ORDERS[:4]:
        await one_desk.start(order, point="shared" if order == "A-2" else "approval")

    first = (await one_desk.client.get("/refunds/pending?name=approval&limit=2")).json()
    second = (await one_desk.client.get("/refunds/pending" + first["next"])).json()
    by_cursor = (await one_desk.client.get("/refunds/pending", params={"after": first["next_after"]})).json()

    assert [item["thread_id"] for item in first["items"]] == ["A-4", "A-3"]
    assert [item["thread_id"] for item in second["items"]] == ["A-1"]
    assert [item["thread_id"] for item in by_cursor["items"]] == ["A-2", "A-1"]


async def test_a_listed_pause_carries_what_an_answer_needs(desk: Desk) -> None:
    token = await desk.ask("A-1")

    (item,) = (await desk.client.get("/refunds/pending", params={"thread_id": "A-1"})).json()["items"]

    assert (item["name"], item["payload"], item["type"]) == ("approval", {"order": "A-1", "amount": 5}, "interrupt")
    assert item["pause_token"] == token


async def test_no_tenant_sees_anothers_pauses(desk: Desk) -> None:
    globex = await desk.client_of("globex")
    await desk.start("A-1", tenant="acme")
    await desk.start("G-1", tenant="globex")

    seen = [(await client.get("/refunds/pending")).json()["items"] for client in (desk.client, globex)]

    assert [[item["thread_id"] for item in items] for items in seen] == [["A-1"], ["G-1"]]
    assert (await desk.client.get("/refunds/pending?thread_id=G-1")).json()["items"] == []


async def test_pauses_below_a_scope_are_listed_where_their_point_allows(one_desk: Desk) -> None:
    for order, point in (("A-1", "approval"), ("A-2", "shared")):
        state = {"order": order, "amount": 5, "point": point}
        configurable = {"thread_id": order, "tenant_id": "acme", "sub_tenant_id": "paris"}
        await one_desk.graph.ainvoke(state, {"configurable": configurable})

    plain = (await one_desk.client.get("/refunds/pending")).json()["items"]
    below = (await one_desk.client.get("/refunds/pending?include_sub_scopes=true")).json()["items"]
    paris = await one_desk.client_of("acme", **{"x-sub-tenant": "paris"})

    assert (plain, [item["thread_id"] for item in below]) == ([], ["A-2"])
    assert len((await paris.get("/refunds/pending")).json()["items"]) == 2


async def test_one_pause_shows_its_question_its_schema_and_the_time_left(desk: Desk) -> None:
    token = await desk.ask("A-1")
    (interrupt_id,) = [item["interrupt_id"] for item in (await desk.client.get("/refunds/pending")).json()["items"]]
    desk.bench.clock.move(timedelta(hours=23))

    shown = (await desk.client.get(f"/refunds/pending/{interrupt_id}")).json()
    by_token = (await desk.client.post("/refunds/inspect", json={"token": token})).json()

    assert shown.pop("pause_token") == token
    assert shown == by_token
    assert (shown["payload"], shown["metadata"], shown["state"]) == (
        {"order": "A-1", "amount": 5},
        {"team": "billing"},
        "pending",
    )
    assert shown["response_schema"]["properties"]["approved"] == {"title": "Approved", "type": "boolean"}
    assert 3599.0 <= shown["seconds_left"] <= 3601.0


async def test_a_pause_that_is_answered_shows_no_token(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")
    interrupt_id = (await one_desk.answer(token)).json()["interrupt_id"]

    shown = (await one_desk.client.get(f"/refunds/pending/{interrupt_id}")).json()

    assert (shown["state"], shown["pause_token"]) == ("applied", None)


async def test_a_pause_that_any_scope_may_answer_with_its_token_is_not_shown_to_another_by_its_id(
    one_desk: Desk,
) -> None:
    globex = await one_desk.client_of("globex")
    await one_desk.ask("A-1", point="shared")
    (interrupt_id,) = one_desk.bench.rows("SELECT interrupt_id FROM interrupt_pauses")[0]

    refused = await globex.get(f"/refunds/pending/{interrupt_id}")

    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_interrupt")


async def test_what_carries_a_token_or_a_payload_is_kept_by_no_cache(one_desk: Desk) -> None:
    token = await one_desk.ask("A-1")
    (interrupt_id,) = one_desk.bench.rows("SELECT interrupt_id FROM interrupt_pauses")[0]

    replies = [
        await one_desk.client.get("/refunds/pending"),
        await one_desk.client.get(f"/refunds/pending/{interrupt_id}"),
        await one_desk.client.post("/refunds/inspect", json={"token": token}),
        await one_desk.client.head("/refunds/events"),
        await one_desk.answer(token, accept="text/event-stream"),
        await one_desk.answer(token),
    ]

    assert [reply.status_code for reply in replies] == [200, 200, 200, 200, 200, 409]
    assert {reply.headers["cache-control"] for reply in replies} == {"no-store"}


async def test_a_scanner_that_follows_every_link_changes_nothing(desk: Desk) -> None:
    await desk.serve(longest_stream=timedelta(0))
    for order in ORDERS[:3]:
        await desk.ask(order, point="shared" if order == "A-2" else "approval")
    await desk.start("G-1", tenant="globex")
    ids = [row[0] for row in desk.bench.rows("SELECT interrupt_id FROM interrupt_pauses")]
    before = every_row(desk.bench.store_url)

    paths = [path.replace("{name}", "approval") for path in desk.app.openapi()["paths"]]
    found = [path.replace("{interrupt_id}", one) for path in paths for one in ids]
    found += ["/refunds/pending?limit=1", "/refunds/events?replay=true", "/docs", "/openapi.json"]
    seen: dict[str, list[int]] = {}
    while found:
        address = found.pop()
        if address in seen:
            continue
        replies = [await desk.client.request(method, address) for method in ("HEAD", "GET", "HEAD")]
        seen[address] = [reply.status_code for reply in replies]
        found += links(replies[1])

    assert seen["/refunds/resume/approval"] == seen["/refunds/inspect"] == [405, 405, 405]
    assert seen["/refunds/pending"] == seen["/refunds/events"] == [200, 200, 200]
    assert sorted(status[1] for address, status in seen.items() if "/pending/" in address) == [200, 200, 200, 404]
    assert sum("after=" in address for address in seen) == 3 + 1  # pages of one, and the page after the first of fifty
    assert every_row(desk.bench.store_url) == before


def links(reply: httpx.Response) -> list[str]:
    """The addresses in a JSON reply."""
    if reply.headers["content-type"] != "application/json":
        return []
    found: Any = reply.json()
    return [urljoin(str(reply.url.path), found["next"])] if found.get("next") else []


def every_row(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        tables = metadata.sorted_tables
        found = {table.name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr) for table in tables}
    engine.dispose()
    return found
