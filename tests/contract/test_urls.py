"""`postgres://` and `postgresql://`, as hosting services write them, lead to the same store as SQLAlchemy's own form."""

from __future__ import annotations

from pathlib import Path

import pytest

from symfonic_interrupts import Interrupts, KeyRing
from tests.contract.graphs import gate_graph
from tests.harness import CONFIG, KEY, open_bench, thread

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
async def test_what_was_asked_through_one_form_is_answered_through_the_other(
    scheme: str, mode: str, postgres_url: str, tmp_path: Path
) -> None:
    async with open_bench(mode, postgres_url, tmp_path) as bench:
        graph, _ = bench.compile(gate_graph(bench.interrupts))
        output = await bench.call(graph, "invoke", {"log": []}, thread())
        url = postgres_url.replace("postgresql+psycopg:", f"{scheme}:", 1)
        async with Interrupts(url, keys=KeyRing([KEY]), config=CONFIG) as other:
            await bench.call(other, "create_schema")  # the tables are there: it changes nothing
            same = gate_graph(other).compile(checkpointer=other.checkpointer(bench.saver))
            adapter = other.resume_adapter(same)
            (event,) = await bench.call(adapter, "pending")
            assert event.interrupt_id == output["__interrupt__"][0].value["interrupt_id"]

            result = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "yes"})

        assert result["log"] == ["yes"]
        assert bench.states() == ["applied"]
