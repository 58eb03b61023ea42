"""GET /events: what is recorded of a scope, in order, and none missed by a client that connects again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from symfonic_interrupts.contrib.fastapi.feed import Feed
from tests.harness import ACME
from tests.http.conftest import Desk, messages
from tests.http.service import MARK

EVENTS = "/refunds/events"


@pytest.fixture
async def feed(desk: Desk) -> Desk:
    """A desk whose event streams end once they have sent what there is."""
    await desk.serve(longest_stream=timedelta(0))
    return desk


def told(reply: httpx.Response) -> list[tuple[str, str]]:
    """Type and thread of the events of a stream."""
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [(kind, data["thread_id"]) for kind, data in messages(reply.text)]


def last_id(reply: httpx.Response) -> str:
    """What a browser would send as `Last-Event-ID`."""
    return [line[4:] for line in reply.text.splitlines() if line.startswith("id: ")][-1]


async def test_a_stream_begins_with_what_comes_next(feed: Desk) -> None:
    await feed.start("A-1")

    first = await feed.client.get(EVENTS)
    await feed.start("A-2")
    again = await feed.client.get(EVENTS, headers={"last-event-id": last_id(first)})

    assert told(first) == []
    assert told(again) == [("interrupt", "A-2")]


async def test_no_event_is_missed_or_told_twice_across_reconnects(feed: Desk) -> None:
    here = last_id(await feed.client.get(EVENTS))
    seen = []
    for order in ("A-1", "A-2", "A-3"):
        token = await feed.ask(order)
        reply = await feed.client.get(EVENTS, headers={"last-event-id": here})
        seen += told(reply)
        here = last_id(reply)
        await feed.answer(token)
    seen += told(await feed.client.get(EVENTS, params={"after": here}))

    assert seen == [
        ("interrupt", "A-1"),
        ("interrupt_resolved", "A-1"),
        ("interrupt", "A-2"),
        ("interrupt_resolved", "A-2"),
        ("interrupt", "A-3"),
        ("interrupt_resolved", "A-3"),
    ]


async def test_a_replay_tells_everything_from_the_oldest_event_on(feed: Desk) -> None:
    await feed.answer(await feed.ask("A-1"))
    await feed.start("A-2")

    reply = await feed.client.get(EVENTS, params={"replay": "true"})

    assert told(reply) == [("interrupt", "A-1"), ("interrupt_resolved", "A-1"), ("interrupt", "A-2")]
    (_, asked), *_ = messages(reply.text)
    assert (asked["body"]["payload"], asked["scope"]["tenant_id"]) == ({"order": "A-1", "amount": 5}, "acme")
    assert "eyJ" not in reply.text


async def test_no_tenant_is_told_of_anothers_events(feed: Desk) -> None:
    globex = await feed.client_of("globex")
    await feed.start("A-1")
    await feed.start("G-1", tenant="globex")

    everything = {"replay": "true", "include_sub_scopes": "true"}

    assert told(await feed.client.get(EVENTS, params=everything)) == [("interrupt", "A-1")]
    assert told(await globex.get(EVENTS, params=everything)) == [("interrupt", "G-1")]


async def test_a_failed_delivery_is_told_without_what_was_raised(feed: Desk) -> None:
    await feed.answer(await feed.ask("A-1", then="fail"))

    reply = await feed.client.get(EVENTS, params={"replay": "true"})

    (failed,) = [data for kind, data in messages(reply.text) if kind == "delivery_failed"]
    assert (failed["thread_id"], failed["body"]) == ("A-1", {"node": "review", "error_type": "ValueError"})
    assert MARK not in reply.text
    ((recorded,),) = feed.bench.rows("SELECT body FROM interrupt_events WHERE type = 'delivery_failed'")
    assert MARK in recorded  # an operator finds it in the store


async def test_the_events_of_one_thread(feed: Desk) -> None:
    for order in ("A-1", "A-2"):
        await feed.start(order)

    reply = await feed.client.get(EVENTS, params={"replay": "true", "thread_id": "A-2"})

    assert told(reply) == [("interrupt", "A-2")]


async def test_more_events_than_are_read_at_once_all_come(one_desk: Desk) -> None:
    await one_desk.serve(longest_stream=timedelta(seconds=1), poll=timedelta(milliseconds=10))
    for number in range(120):
        await one_desk.start(f"A-{number}")

    reply = await one_desk.client.get(EVENTS, params={"replay": "true"})

    assert [thread for _, thread in told(reply)] == [f"A-{number}" for number in range(120)]


@pytest.mark.parametrize("cursor", ["nonsense", "1", "1-2-3", "99999999999999999999-1", "-1"])
async def test_a_cursor_that_is_none_is_refused_before_the_stream(feed: Desk, cursor: str) -> None:
    for reply in (
        await feed.client.get(EVENTS, headers={"last-event-id": cursor}),
        await feed.client.get(EVENTS, params={"after": cursor}),
    ):
        document: Any = reply.json()
        assert (reply.status_code, document["code"]) == (400, "cursor_invalid")


async def test_a_silent_stream_is_kept_alive_by_pings(one_desk: Desk) -> None:
    await one_desk.serve(
        longest_stream=timedelta(seconds=1), ping=timedelta(milliseconds=100), poll=timedelta(milliseconds=50)
    )

    reply = await one_desk.client.get(EVENTS)

    assert told(reply) == []
    assert reply.text.count(": ping") >= 3


async def test_a_store_that_goes_away_ends_the_stream_with_the_problem(one_desk: Desk) -> None:
    feed = Feed(
        adapter=one_desk.adapter,
        scope=ACME,
        include_sub_scopes=False,
        thread_id=None,
        poll=timedelta(0),
        longest=timedelta(minutes=1),
    )
    stream = feed.messages(*await feed.start(None, replay=False))
    first = (await anext(stream)).encode()
    engine = sa.create_engine(one_desk.bench.store_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE interrupt_events")
    engine.dispose()

    rest = [bytes(message.encode()).decode() async for message in stream]

    assert bytes(first).startswith(b"id: ")
    ((kind, document),) = messages("".join(rest))
    assert (kind, document["code"], document["status"]) == ("error", "store_error", 503)
