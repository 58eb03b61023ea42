"""What cannot work is refused with an error that names the thing and the remedy, as early as it can be known."""

from __future__ import annotations

import asyncio
import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

from symfonic_interrupts import (
    FeatureDisabled,
    FrameworkConfig,
    Interrupts,
    KeyRing,
    KeyRingError,
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
    StoreError,
    UsageError,
)
from tests.harness import ACME, CONFIG, KEY, Bench, Decision, Refund, open_bench, thread


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def gate(bench: Bench) -> Any:
    point = bench.refunds()

    def node(state: State) -> dict[str, Any]:
        return {"log": [point.pause(Refund(order="A", amount=1)).note]}

    return node


def around(node: Any, **options: Any) -> Any:
    return StateGraph(State).add_node("gate", node, **options).add_edge(START, "gate")


async def test_a_bare_saver_under_a_point_is_refused_when_the_adapter_is_made_and_when_the_node_asks(
    bench: Bench,
) -> None:
    graph = around(gate(bench)).compile(checkpointer=bench.saver)

    with pytest.raises(RegistrationError, match=r"interrupts\.checkpointer\(saver\)"):
        bench.interrupts.resume_adapter(graph)
    with pytest.raises(RegistrationError, match=r"interrupts\.checkpointer\(saver\)"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


async def test_a_graph_without_a_saver_is_refused(bench: Bench) -> None:
    graph = around(gate(bench)).compile()

    with pytest.raises(RegistrationError, match="checkpointer"):
        bench.interrupts.resume_adapter(graph)
    with pytest.raises(RegistrationError, match=r"checkpointer=interrupts\.checkpointer\(saver\)"):
        await bench.call(graph, "invoke", {"log": []})
    with pytest.raises(RegistrationError, match="compiled"):
        bench.interrupts.resume_adapter(around(gate_of("x")))


def gate_of(_: str) -> Any:
    return lambda state: {"log": []}


async def test_a_saver_of_another_hub_is_refused(bench: Bench, tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "other.db") as other:
        graph = around(gate(bench)).compile(checkpointer=other.checkpointer(bench.saver))
        with pytest.raises(RegistrationError, match="not from this Interrupts"):
            bench.interrupts.resume_adapter(graph)
        with pytest.raises(RegistrationError, match="not from this Interrupts"):
            await bench.call(graph, "invoke", {"log": []}, thread())


async def test_a_child_without_a_saver_of_its_own_is_refused_before_it_asks(bench: Bench) -> None:
    child = around(gate(bench)).compile(checkpointer=False)
    graph, _ = bench.compile(StateGraph(State).add_node("sub", child).add_edge(START, "sub"))

    with pytest.raises(RegistrationError, match="checkpointer=False"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


def test_a_saver_is_wrapped_once_and_only_a_saver_is_wrapped(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(InMemorySaver())
        with pytest.raises(RegistrationError, match="wrapped already"):
            interrupts.checkpointer(wrapped)
        with pytest.raises(RegistrationError, match="BaseCheckpointSaver"):
            interrupts.checkpointer(SqliteSaver.from_conn_string(":memory:"))  # type: ignore[arg-type]
        with pytest.raises(RegistrationError, match="graph must look like"):
            interrupts.checkpointer(InMemorySaver(), graph="a/b")


async def test_a_closed_hub_refuses_every_use(bench: Bench) -> None:
    graph, adapter = bench.compile(around(gate(bench)))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending")
    janitor = bench.interrupts.janitor(adapter)
    bench.interrupts.close()

    uses: list[Any] = [
        lambda: bench.call(graph, "invoke", {"log": []}, thread("t2")),
        lambda: bench.call(adapter, "answer", event.pause_token, {"approved": True}),
        lambda: bench.call(adapter, "inspect", event.pause_token),
        lambda: bench.call(adapter, "pending"),
        lambda: bench.call(adapter, "deliver", "t1"),
        lambda: bench.call(adapter, "recover"),
        lambda: bench.call(janitor, "sweep"),
        lambda: asyncio.to_thread(bench.interrupts.checkpointer, InMemorySaver()),
        lambda: asyncio.to_thread(bench.interrupts.resume_adapter, graph),
        lambda: asyncio.to_thread(bench.refunds, "another"),
        lambda: asyncio.to_thread(bench.interrupts.create_schema),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="closed"):
            await use()


async def test_a_sync_saver_in_an_async_run_is_named_before_anything_runs(store_url: str, tmp_path: Path) -> None:
    async with open_bench("sync", store_url, tmp_path) as bench:
        ran: list[str] = []
        graph, adapter = bench.compile(around(lambda state: ran.append("ran")))
        saver = type(bench.saver).__name__

        with pytest.raises(RegistrationError, match=f"{saver} is sync only.*Async{saver}"):
            await graph.ainvoke({"log": []}, thread())
        with pytest.raises(RegistrationError, match=saver):
            await adapter.adeliver("t1")
        assert ran == []


async def test_an_async_engine_under_a_sync_graph_is_named_before_anything_runs(store_url: str, tmp_path: Path) -> None:
    url = store_url.replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url)
    interrupts = Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG)
    await interrupts.acreate_schema()
    ran: list[str] = []
    graph = around(lambda state: ran.append("ran")).compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)

    for use in (
        lambda: graph.invoke({"log": []}, thread()),
        lambda: adapter.pending(),
        lambda: adapter.deliver("t1"),
        lambda: interrupts.create_schema(),
    ):
        with pytest.raises(RegistrationError, match="AsyncEngine serves async calls only"):
            await asyncio.to_thread(use)
    assert ran == []
    await interrupts.aclose()
    await engine.dispose()


async def test_an_async_engine_serves_an_async_graph(store_url: str, tmp_path: Path) -> None:
    engine = create_async_engine(store_url.replace("sqlite://", "sqlite+aiosqlite://"))
    interrupts = Interrupts(engine, keys=KeyRing([KEY]), config=CONFIG)
    await interrupts.acreate_schema()
    point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
    node = point.node(payload=lambda state: Refund(order="A", amount=1))(
        lambda state, decision: {"log": [decision.note]}
    )
    graph = around(node).compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)
    await graph.ainvoke({"log": []}, thread())
    (event,) = await adapter.apending()

    assert (await adapter.ainvoke(event.pause_token, {"approved": True, "note": "ok"}))["log"] == ["ok"]
    await interrupts.aclose()
    await engine.dispose()


async def test_a_cached_node_that_is_a_point_is_refused(bench: Bench) -> None:
    point = bench.refunds()
    decorated = point.node(payload=lambda state: Refund(order="A", amount=1))(lambda state, decision: {"log": []})
    with pytest.raises(RegistrationError, match="CachePolicy"):
        bench.compile(around(decorated, cache_policy=CachePolicy()), cache=InMemoryCache())

    def hidden(state: State) -> dict[str, Any]:  # nothing shows that it asks until it does
        return {"log": [point.pause(Refund(order="A", amount=1)).note]}

    graph, _ = bench.compile(around(hidden, cache_policy=CachePolicy()), cache=InMemoryCache())
    with pytest.raises(RegistrationError, match="CachePolicy"):
        await bench.call(graph, "invoke", {"log": []}, thread())
    assert bench.states() == []


async def test_a_covered_native_node_that_is_cached_is_refused(bench: Bench) -> None:
    bench.refunds(nodes=("gate",))
    with pytest.raises(RegistrationError, match="CachePolicy"):
        bench.compile(around(lambda state: {"log": []}, cache_policy=CachePolicy()), cache=InMemoryCache())


async def test_a_registered_node_that_the_graph_lacks_is_refused_with_the_nodes_it_has(bench: Bench) -> None:
    bench.refunds(nodes=("gaet",))
    with pytest.raises(RegistrationError, match=r"'gaet'.*\['gate'\]"):
        bench.compile(around(lambda state: {"log": []}))


async def test_a_registered_node_of_another_graph_is_not_looked_for(bench: Bench) -> None:
    bench.refunds(nodes=("billing/gate",))
    bench.compile(around(lambda state: {"log": []}), graph="billing")
    bench.compile(StateGraph(State).add_node("other", gate_of("x")).add_edge(START, "other"), graph="shipping")


async def test_two_graphs_under_one_name_are_warned_of(bench: Bench) -> None:
    bench.compile(around(lambda state: {"log": []}))
    with pytest.warns(UserWarning, match="two graphs go by the name 'default'"):
        bench.compile(StateGraph(State).add_node("other", gate_of("x")).add_edge(START, "other"))


async def test_a_payload_of_another_model_or_over_the_limit_is_refused_and_nothing_is_opened(
    store_url: str, tmp_path: Path
) -> None:
    class Other(BaseModel):
        order: str = "A"
        amount: int = 1

    config = FrameworkConfig(
        experimental_interrupt=True, default_scope=ACME, max_payload_bytes=100, max_response_bytes=50
    )
    async with open_bench("sync", store_url, tmp_path, config) as bench:
        point = bench.refunds()
        shown: list[Any] = []
        node = point.node(payload=lambda state: shown[0])(lambda state, decision: {"log": [decision.note]})
        graph, adapter = bench.compile(around(node))

        shown.append(Other())
        with pytest.raises(PayloadInvalid, match="payload must be a Refund, not Other"):
            graph.invoke({"log": []}, thread())
        shown[0] = Refund(order="x" * 100, amount=1)
        with pytest.raises(PayloadInvalid, match="max_payload_bytes"):
            graph.invoke({"log": []}, thread())
        assert bench.states() == []

        shown[0] = Refund(order="x", amount=1)
        graph.invoke(None, thread())
        (event,) = adapter.pending()
        with pytest.raises(ResponseInvalid, match="max_response_bytes"):
            adapter.answer(event.pause_token, {"approved": True, "note": "x" * 100})
        assert adapter.invoke(event.pause_token, {"approved": True, "note": "short"}) == {"log": ["short"]}


def test_a_point_pauses_only_inside_a_running_graph(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        with pytest.raises(UsageError, match="inside a node"):
            point.pause(Refund(order="A", amount=1))


def test_custom_points_need_the_flag_and_the_built_in_one_does_not(sqlite_url: str) -> None:
    with Interrupts(sqlite_url, keys=KeyRing([KEY])) as interrupts:
        with pytest.raises(FeatureDisabled, match="experimental_interrupt"):
            interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        assert list(interrupts.registrations) == ["ask_user"]
        assert interrupts.ask_user.registration.built_in


def test_the_built_in_point_is_not_replaced(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts, pytest.raises(RegistrationError, match="built in"):
        interrupts.register_interrupt("ask_user", payload_schema=Refund, response_schema=Decision)


def test_keys_are_required(sqlite_url: str) -> None:
    with pytest.raises(KeyRingError, match="KeyRing"):
        Interrupts(sqlite_url, keys=[KEY])  # type: ignore[arg-type]


def test_a_point_registered_again_in_a_notebook_replaces_the_first(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        for _ in range(2):
            interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        mode = (tmp_path / "x.db.key").stat().st_mode & 0o777
        assert mode == 0o600
    with Interrupts.local(tmp_path / "x.db") as again:
        assert again.config.default_scope is not None
        assert again.config.default_scope.tenant_id == "local"


def test_local_takes_settings_as_they_are(tmp_path: Path) -> None:
    config = FrameworkConfig(default_ttl=timedelta(minutes=5))

    with Interrupts.local(tmp_path / "x.db", config=config) as interrupts:
        assert interrupts.config is config
        with pytest.raises(FeatureDisabled, match="experimental_interrupt"):
            interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)


@pytest.mark.parametrize("bad", [lambda state: None, lambda: None, lambda state, *, decision: None])
def test_a_node_function_takes_state_and_decision(tmp_path: Path, bad: Any) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        with pytest.raises(RegistrationError, match=r"\(state, decision"):
            point.node(payload=lambda state: Refund(order="A", amount=1))(bad)


def test_an_async_payload_needs_an_async_node(tmp_path: Path) -> None:
    async def payload(state: Any) -> Refund:
        return Refund(order="A", amount=1)

    with Interrupts.local(tmp_path / "x.db") as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)
        with pytest.raises(RegistrationError, match="async"):
            point.node(payload=payload)(lambda state, decision: None)


async def test_one_decorator_registers_and_decorates(bench: Bench) -> None:
    @bench.interrupts.interrupt_point(
        "quick", payload_schema=Refund, response_schema=Decision, payload=lambda state: Refund(order="Q", amount=1)
    )
    def node(state: State, decision: Decision) -> dict[str, Any]:
        return {"log": [decision.note]}

    graph, adapter = bench.compile(around(node))
    await bench.call(graph, "invoke", {"log": []}, thread())
    (event,) = await bench.call(adapter, "pending", name="quick")
    assert (await bench.call(adapter, "invoke", event.pause_token, {"approved": True, "note": "x"}))["log"] == ["x"]
