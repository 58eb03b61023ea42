"""What is refused is counted, and told once a minute for each pause, code and scope, however often it comes."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.stores import Store, pause_row

COUNTS = "SELECT code, scope_hash, count FROM interrupt_refusals ORDER BY code, scope_hash"


async def refuse(store: Store, row: dict[str, Any], *, code: str = "scope_mismatch", scope: str = "a-scope") -> Any:
    return await store.do(store.operations.recording.refuse, row, code, {"actor": "eve"}, scope)


def told(store: Store) -> list[dict[str, Any]]:
    bodies = store.rows("SELECT body FROM interrupt_events WHERE type = 'interrupt_refused' ORDER BY id")
    return [json.loads(body) for (body,) in bodies]


def a_minute_passes(store: Store) -> None:
    store.execute("UPDATE interrupt_refusals SET told_at = '2020-01-01 00:00:00'")


async def test_of_100_refusals_in_a_minute_the_first_is_told_and_all_are_counted(store: Store) -> None:
    (row,) = await store.open(pause_row())

    said = [await refuse(store, row) for _ in range(100)]

    assert said == [1] + [None] * 99
    assert told(store) == [{"actor": "eve", "code": "scope_mismatch", "count": 1}]
    assert store.rows(COUNTS) == [("scope_mismatch", "a-scope", 100)]


async def test_the_next_minutes_event_tells_how_many_there_were_by_then(store: Store) -> None:
    (row,) = await store.open(pause_row())
    for _ in range(3):
        await refuse(store, row)
    a_minute_passes(store)

    said = [await refuse(store, row) for _ in range(2)]

    assert said == [4, None]
    assert [body["count"] for body in told(store)] == [1, 4]


async def test_each_pause_code_and_scope_is_told_of_its_own(store: Store) -> None:
    one, other = await store.open(pause_row(), pause_row())

    said = [
        await refuse(store, one),
        await refuse(store, other),
        await refuse(store, one, code="row_altered"),
        await refuse(store, one, scope="another-scope"),
        await refuse(store, one),
    ]

    assert said == [1, 1, 1, 1, None]


async def test_of_24_refusals_at_once_one_is_told_and_none_is_lost(store: Store) -> None:
    (row,) = await store.open(pause_row())
    call = (store.operations.recording.refuse, (row, "scope_mismatch", {}, "a-scope"))

    said = await store.race([call] * 24)

    assert sorted(said, key=str) == [1] + [None] * 23
    assert store.rows(COUNTS) == [("scope_mismatch", "a-scope", 24)]


async def test_counts_go_with_their_pause(store: Store) -> None:
    gone, kept = await store.open(pause_row(), pause_row())
    await refuse(store, gone)
    await refuse(store, kept, scope="kept")
    store.execute(f"DELETE FROM interrupt_pauses WHERE jti = '{gone['jti']}'")
    a_minute_passes(store)

    await store.do(store.operations.upkeep.purge, gone["created_at"], with_events=False)

    assert store.rows(COUNTS) == [("scope_mismatch", "kept", 1)]
