"""Pauses that have the same `interrupt_id` by chance. The ids are made alike by hand, and the rows sealed again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph

from symfonic_interrupts import FrameworkTenantScope, KeyRing, ScopeMismatch, TokenConsumed, UnknownInterrupt
from symfonic_interrupts.store.row_mac import seal_row
from symfonic_interrupts.store.schema import pauses
from tests.harness import ACME, KEY, Bench, Refund, thread

SAME = "i-00000000beef"
GLOBEX = FrameworkTenantScope("globex")


async def alike(bench: Bench, *where: tuple[str, str], **options: Any) -> Any:
    """An adapter with one pause in each (thread, tenant), oldest first, all with the same id."""
    point = bench.refunds(**options)
    node = lambda state: {"log": [point.pause(Refund(order="A", amount=1)).note]}  # noqa: E731
    graph, adapter = bench.compile(StateGraph(dict).add_node("gate", node).add_edge(START, "gate"))
    for thread_id, tenant in where:
        await bench.call(graph, "invoke", {"log": []}, thread(thread_id, tenant_id=tenant))
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:
        for row in connection.execute(sa.select(pauses)).mappings().all():
            sealed = seal_row({**row, "interrupt_id": SAME}, KeyRing([KEY]))
            change = {key: sealed[key] for key in ("interrupt_id", "mac_kid", "mac")}
            connection.execute(sa.update(pauses).where(pauses.c.id == row["id"]).values(change))
    engine.dispose()
    return adapter


def states(bench: Bench) -> dict[str, str]:
    return dict(bench.rows("SELECT thread_id, state FROM interrupt_pauses ORDER BY id"))  # type: ignore[arg-type]


async def test_an_id_that_two_scopes_have_means_each_its_own(bench: Bench) -> None:
    adapter = await alike(bench, ("mine", "acme"), ("theirs", "globex"))

    assert (await bench.call(adapter, "view", SAME, scope=ACME)).thread_id == "mine"
    assert (await bench.call(adapter, "view", SAME, scope=GLOBEX)).thread_id == "theirs"
    assert (await bench.call(adapter, "reissue", SAME, scope=ACME)).thread_id == "mine"
    (open_one,) = await bench.call(adapter, "pending", interrupt_id=SAME, scope=ACME)
    assert open_one.thread_id == "mine"
    await bench.call(adapter, "revoke", SAME, reason="by mistake", scope=ACME)

    assert states(bench) == {"mine": "revoked", "theirs": "pending"}
    with pytest.raises(TokenConsumed, match="revoked"):
        await bench.call(adapter, "revoke", SAME, reason="by mistake", scope=ACME)
    with pytest.raises(ScopeMismatch):
        await bench.call(adapter, "revoke", SAME, reason="by mistake", scope=FrameworkTenantScope("nobody"))
    assert states(bench) == {"mine": "revoked", "theirs": "pending"}


async def test_of_two_pauses_with_one_id_the_open_one_is_meant(bench: Bench) -> None:
    adapter = await alike(bench, ("old", "acme"), ("new", "acme"))
    await bench.call(adapter, "revoke", SAME, reason="by mistake", scope=ACME, thread_id="new")

    assert (await bench.call(adapter, "view", SAME, scope=ACME)).thread_id == "old"
    assert (await bench.call(adapter, "reissue", SAME, scope=ACME)).thread_id == "old"
    await bench.call(adapter, "revoke", SAME, reason="as well", scope=ACME)

    assert states(bench) == {"old": "revoked", "new": "revoked"}
    for call, more in (("view", {}), ("reissue", {}), ("revoke", {"reason": "again"})):
        with pytest.raises(UnknownInterrupt, match="several pauses"):
            await bench.call(adapter, call, SAME, scope=ACME, **more)


async def test_an_id_that_two_open_pauses_have_is_refused_until_the_thread_is_named(bench: Bench) -> None:
    adapter = await alike(bench, ("one", "acme"), ("two", "acme"))

    for call, more in (("view", {}), ("reissue", {}), ("revoke", {"reason": "x"})):
        with pytest.raises(UnknownInterrupt, match="thread_id and interrupt_id together"):
            await bench.call(adapter, call, SAME, scope=ACME, **more)
    with pytest.raises(UnknownInterrupt, match="thread_id and interrupt_id together"):
        await bench.call(adapter, "pending", interrupt_id=SAME, limit=1, scope=ACME)
    assert states(bench) == {"one": "pending", "two": "pending"}

    assert (await bench.call(adapter, "view", SAME, scope=ACME, thread_id="one")).thread_id == "one"
    (named,) = await bench.call(adapter, "pending", interrupt_id=SAME, thread_id="one", scope=ACME)
    assert named.thread_id == "one"
    assert (await bench.call(adapter, "reissue", SAME, scope=ACME, thread_id="one")).thread_id == "one"
    await bench.call(adapter, "revoke", SAME, reason="x", scope=ACME, thread_id="one")
    assert states(bench) == {"one": "revoked", "two": "pending"}


async def test_a_page_goes_on_after_the_callers_own_pause(bench: Bench) -> None:
    adapter = await alike(bench, ("mine", "acme"), ("theirs", "globex"))
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:  # the id of globex's pause is one that acme's listing ends with
        row = connection.execute(sa.select(pauses).where(pauses.c.thread_id == "mine")).mappings().one()
        values = {**row, "jti": "f" * 32, "thread_id": "before", "interrupt_id": "i-000000000001"}
        del values["id"]
        connection.execute(sa.insert(pauses).values(seal_row(values, KeyRing([KEY]))))
    engine.dispose()
    first = await bench.call(adapter, "pending", scope=ACME, limit=1)
    assert [event.thread_id for event in first] == ["before"]

    second = await bench.call(adapter, "pending", scope=ACME, limit=1, after=first[-1].interrupt_id)

    assert [event.thread_id for event in second] == ["mine"]
    assert await bench.call(adapter, "pending", scope=ACME, after=SAME) == []


async def test_a_page_that_would_begin_after_either_of_two_is_refused(bench: Bench) -> None:
    adapter = await alike(bench, ("one", "acme"), ("two", "acme"))

    with pytest.raises(UnknownInterrupt, match="several pauses"):
        await bench.call(adapter, "pending", scope=ACME, after=SAME)

    assert len(await bench.call(adapter, "pending", scope=ACME, limit=1)) == 1
    assert len(await bench.call(adapter, "pending", scope=ACME)) == 2


async def test_defaults_of_two_pauses_with_one_id_are_both_delivered(bench: Bench) -> None:
    adapter = await alike(
        bench, ("one", "acme"), ("two", "acme"), ttl=timedelta(minutes=1), on_expire={"approved": False}
    )
    engine = sa.create_engine(bench.store_url)
    with engine.begin() as connection:  # PostgreSQL decides by its own clock
        past = {
            "expires_at": bench.clock.now - timedelta(minutes=5),
            "created_at": bench.clock.now - timedelta(hours=1),
        }
        for row in connection.execute(sa.select(pauses)).mappings().all():
            connection.execute(sa.update(pauses).where(pauses.c.id == row["id"]).values(sealed(row, **past)))
    engine.dispose()

    report = await bench.call(bench.interrupts.janitor(adapter), "sweep")

    assert report.defaulted == (SAME, SAME)
    assert sorted(delivery.thread_id for delivery in report.deliveries) == ["one", "two"]


def sealed(row: Any, **changes: Any) -> dict[str, Any]:
    found = seal_row({**row, **changes}, KeyRing([KEY]))
    return {key: found[key] for key in (*changes, "mac_kid", "mac")}
