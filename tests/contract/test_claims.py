"""A pause leaves `pending` once, whoever comes at the same time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from symfonic_interrupts.store.operations import Claim
from tests.contract.stores import Store, answer_claim, overdue_row, pause_row, told
from tests.contract.workers import run_workers

EXPIRE = Claim("expired", "expired")
SUPERSEDE = Claim("superseded", "superseded")


async def test_one_of_24_answers_at_once_is_stored_and_the_others_are_told_nothing(store: Store) -> None:
    (row,) = await store.open(pause_row())
    calls = [
        (store.operations.claiming.answer, (row, answer_claim(f'{{"by":{number}}}'), told("interrupt_resolved")))
        for number in range(24)
    ]

    results = await store.race(calls)

    winners = [number for number, at in enumerate(results) if at is not None]
    assert len(winners) == 1
    assert results.count(None) == 23
    assert store.states() == {row["jti"]: "answered"}
    assert store.rows("SELECT jti, outcome, response FROM interrupt_consumed_tokens") == [
        (row["jti"], "answered", f'{{"by":{winners[0]}}}')
    ]
    assert store.event_types() == ["interrupt_resolved"]


@pytest.mark.parametrize(
    ("make", "outcomes"),
    [(pause_row, {"answered", "superseded"}), (overdue_row, {"expired", "superseded"})],
    ids=["in time", "overdue"],
)
async def test_answer_sweep_and_supersede_at_once_have_one_winner(store: Store, make, outcomes: set[str]) -> None:
    (row,) = await store.open(make())
    operations = store.operations
    contenders = [
        (operations.claiming.answer, (row, answer_claim(), told("answered"))),
        (operations.claiming.expire, (row, EXPIRE, lambda at: [told("expired")(at)])),
        (operations.claiming.close, (row, SUPERSEDE, ("superseded", {}))),
    ]

    results = await store.race(contenders * 6)

    assert sum(at is not None for at in results) == 1
    ((outcome,),) = store.rows("SELECT outcome FROM interrupt_consumed_tokens")
    winner = next(place for place, at in enumerate(results) if at is not None)
    assert outcome == ("answered", "expired", "superseded")[winner % 3]
    assert outcome in outcomes
    assert store.states() == {row["jti"]: outcome}
    assert store.event_types() == [outcome]


async def test_the_pause_whose_time_ends_during_the_race_still_has_one_winner(store: Store) -> None:
    rows = [
        pause_row(thread_id=f"t{n}", expires_at=datetime.now(UTC) + timedelta(milliseconds=8 * n)) for n in range(8)
    ]
    await store.open(*rows)
    operations = store.operations
    calls = []
    for row in rows:
        calls.append((operations.claiming.answer, (row, answer_claim(), told("answered"))))
        calls.append((operations.claiming.expire, (row, EXPIRE, told("expired"))))
        calls.append((operations.claiming.close, (row, SUPERSEDE, ("superseded", {}))))

    results = await store.race(calls)

    by_row = [results[place : place + 3] for place in range(0, len(results), 3)]
    assert [sum(at is not None for at in three) for three in by_row] == [1] * 8
    assert sorted(store.event_types()) == sorted(store.states().values())
    assert store.rows("SELECT count(*) FROM interrupt_consumed_tokens") == [(8,)]


async def test_an_answer_comes_in_time_only_and_a_sweep_only_after(store: Store) -> None:
    open_row, late_row = await store.open(pause_row(), overdue_row())

    assert await store.do(store.operations.claiming.expire, open_row, EXPIRE, told("expired")) is None
    assert await store.do(store.operations.claiming.answer, late_row, answer_claim(), told("answered")) is None
    assert store.rows("SELECT * FROM interrupt_consumed_tokens") == []
    assert store.event_types() == []

    before = datetime.now(UTC) - timedelta(seconds=5)
    at = await store.do(store.operations.claiming.answer, open_row, answer_claim(), told("answered"))

    assert before < at < datetime.now(UTC) + timedelta(seconds=5)
    assert at.utcoffset() == timedelta(0)
    assert await store.do(store.operations.claiming.expire, late_row, EXPIRE, told("expired")) is not None
    assert store.states() == {open_row["jti"]: "answered", late_row["jti"]: "expired"}


async def test_a_claim_that_fails_on_its_way_leaves_no_trace(store: Store) -> None:
    (row,) = await store.open(pause_row())

    def fail(at: datetime) -> None:
        raise LookupError("the body of the event cannot be made")

    with pytest.raises(LookupError):
        await store.do(store.operations.claiming.answer, row, answer_claim(), fail)

    assert store.states() == {row["jti"]: "pending"}
    assert store.rows("SELECT * FROM interrupt_consumed_tokens") == []
    assert await store.do(store.operations.claiming.answer, row, answer_claim(), told("answered")) is not None


async def test_a_token_that_no_pause_has_cannot_be_claimed(store: Store) -> None:
    stranger = pause_row()

    assert await store.do(store.operations.claiming.answer, stranger, answer_claim(), told("answered")) is None
    assert await store.do(store.operations.reading.load_pause, stranger["jti"]) == (None, None)


async def test_what_was_recorded_of_an_answer_is_read_with_its_pause(store: Store) -> None:
    (row,) = await store.open(pause_row())
    claim = Claim(
        "answered", "answered", '{"approved":true}', "hash", '{"kid":"k"}', "ann@acme", "scope", True, "key-1"
    )
    at = await store.do(store.operations.claiming.answer, row, claim, told("answered"))

    found, outcome = await store.do(store.operations.reading.load_pause, row["jti"])

    assert outcome is None
    assert {key: value for key, value in found.items() if key.startswith("answer_")} == {
        "answer_outcome": "answered",
        "answer_at": at,
        "answer_response": '{"approved":true}',
        "answer_response_hash": "hash",
        "answer_receipt": '{"kid":"k"}',
        "answer_actor": "ann@acme",
        "answer_scope_hash": "scope",
        "answer_defaulted": True,
        "answer_idempotency_key": "key-1",
    }
    assert (found["state"], bool(found["overdue"])) == ("answered", False)


async def test_one_of_16_processes_stores_its_answer(url_store: Store) -> None:
    (row,) = await url_store.open(pause_row())

    results = run_workers("claim", 16, url_store.url, stdin=row["jti"])

    assert sorted(results) == ["lost"] * 15 + ["won"]
    assert url_store.states() == {row["jti"]: "answered"}
    assert url_store.rows("SELECT count(*) FROM interrupt_consumed_tokens") == [(1,)]
    assert url_store.event_types() == ["answered"]
