"""A pause row edited by hand, field by field: no token is minted from it, no answer is taken, and it is recorded."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import jwt
import pytest
import sqlalchemy as sa
from langgraph.graph import START, StateGraph

from symfonic_interrupts import StoreError, TokenInvalid
from tests.harness import Bench, Refund, pauses, thread

TEXTS = (
    *(
        "interrupt_id",
        "graph",
        "audience",
        "name",
        "thread_id",
        "checkpoint_id",
        "task_id",
        "leaf_ns",
        "leaf_checkpoint_id",
    ),
    *(
        "leaf_task_id",
        "langgraph_id",
        "payload",
        "request_hash",
        "tenant_id",
        "sub_tenant_id",
        "namespace",
        "scope_hash",
    ),
    *("run_id", "requested_by", "trace_context"),
)
EDITS: dict[str, str] = {
    **{column: f"coalesce({column}, '') || 'x'" for column in TEXTS},
    "slot": "slot + 1",
    "occurrence": "occurrence + 1",
    "native": "NOT native",
    "mac": "'AAAA'",
    "mac_kid": "'k-000000000000'",
}
TIMES = {
    "sqlite": "datetime({column}, '+1 day')",
    "postgresql": "{column} + interval '1 day'",
}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def recorded(bench: Bench) -> int:
    """How many refusals of altered rows were counted."""
    (count,) = bench.rows("SELECT coalesce(sum(count), 0) FROM interrupt_refusals WHERE code = 'row_altered'")[0]
    return int(count)


async def test_whichever_field_is_edited_the_row_is_refused_and_recorded_and_good_again_when_it_is_put_back(
    bench: Bench,
) -> None:
    point = bench.refunds()

    def gate(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A", amount=1)).note]}

    graph, adapter = bench.compile(StateGraph(State).add_node("gate", gate).add_edge(START, "gate"))
    (event,) = pauses(await bench.collect(graph, "stream", {"log": []}, thread(), stream_mode="custom"))
    engine = sa.create_engine(bench.store_url)
    times = {column: TIMES[engine.dialect.name].format(column=column) for column in ("created_at", "expires_at")}
    try:
        for column, edited in {**EDITS, **times}.items():
            ((before,),) = bench.rows(f"SELECT {column} FROM interrupt_pauses")
            refusals = recorded(bench)
            with engine.begin() as connection:
                connection.exec_driver_sql(f"UPDATE interrupt_pauses SET {column} = {edited}")

            with pytest.raises(StoreError, match="was changed in the database") as refused:
                await bench.call(adapter, "answer", event.pause_token, {"approved": True})
            assert refused.value.retryable is False, column
            assert recorded(bench) == refusals + 1, column
            assert [e.pause_token for e in await bench.call(adapter, "pending", thread_id="t1")] == [], column

            with engine.begin() as connection:
                connection.execute(sa.text(f"UPDATE interrupt_pauses SET {column} = :before"), {"before": before})

        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE interrupt_pauses SET jti = 'another'")
        with pytest.raises(TokenInvalid, match="not in this store"):
            await bench.call(adapter, "answer", event.pause_token, {"approved": True})
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE interrupt_pauses SET jti = :jti"), {"jti": _jti(event.pause_token)})
    finally:
        engine.dispose()

    output = await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "fine"})
    assert output["log"] == ["fine"]


def _jti(token: str) -> Any:

    return jwt.decode(token, options={"verify_signature": False})["jti"]
