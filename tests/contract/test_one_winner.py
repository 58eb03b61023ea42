"""A real token is worth one answer: of 30 who present it at once, one gets a receipt and 29 are told that it is spent."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from symfonic_interrupts import InterruptError
from tests.contract.graphs import gate_graph
from tests.contract.workers import run_workers
from tests.harness import Bench, open_bench, thread

THIRTY = 30


async def redeem_at_once(bench: Bench, adapter, token: str) -> list[str]:
    """The types of what 30 redeemers get, each with an answer of its own: tasks, or threads."""
    if bench.mode == "async":
        calls = (adapter.aanswer(token, {"approved": True, "note": f"from {n}"}) for n in range(THIRTY))
        return [type(found).__name__ for found in await asyncio.gather(*calls, return_exceptions=True)]
    start = threading.Barrier(THIRTY)

    def redeem(number: int) -> str:
        start.wait(timeout=20)
        try:
            return type(adapter.answer(token, {"approved": True, "note": f"from {number}"})).__name__
        except InterruptError as error:
            return type(error).__name__

    def redeem_all() -> list[str]:
        with ThreadPoolExecutor(THIRTY) as pool:
            return list(pool.map(redeem, range(THIRTY), timeout=60))

    return await asyncio.to_thread(redeem_all)


async def check_one_delivery(bench: Bench, graph, adapter, bodies: list[str]) -> None:
    """The graph goes on once, with the answer that won."""
    ((response,),) = bench.rows("SELECT response FROM interrupt_consumed_tokens")

    delivery = await bench.call(adapter, "deliver", "t1")
    again = await bench.call(adapter, "deliver", "t1")

    (note,) = bodies
    assert f'"note":"{note}"' in response
    assert delivery.output == {"log": [note]}
    assert (len(delivery.applied), again.applied, again.ran) == (1, (), False)
    assert bench.states() == ["applied"]
    assert bench.rows("SELECT count(*) FROM interrupt_events WHERE type = 'interrupt_resolved'") == [(1,)]
    assert bench.rows("SELECT * FROM interrupt_thread_leases") == []


async def test_of_30_redeemers_in_one_process_one_gets_a_receipt(bench: Bench) -> None:
    bodies: list[str] = []
    graph, adapter = bench.compile(gate_graph(bench.interrupts, bodies))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")

    results = await redeem_at_once(bench, adapter, event.pause_token)

    assert sorted(results) == ["AnswerReceipt"] + ["TokenConsumed"] * 29
    await check_one_delivery(bench, graph, adapter, bodies)


async def test_of_30_processes_one_gets_a_receipt(store_url: str, tmp_path: Path) -> None:
    bodies: list[str] = []
    checkpoints = str(tmp_path / "checkpoints.db") if store_url.startswith("sqlite") else store_url
    async with open_bench("sync", store_url, tmp_path) as bench:
        graph, adapter = bench.compile(gate_graph(bench.interrupts, bodies))
        await bench.call(graph, "invoke", {"log": []}, thread())
        (event,) = await bench.call(adapter, "pending")

        results = run_workers("redeem", THIRTY, store_url, checkpoints, stdin=event.pause_token)

        assert sorted(results) == ["AnswerReceipt"] + ["TokenConsumed"] * 29
        await check_one_delivery(bench, graph, adapter, bodies)
