"""Savers of other packages under the wrapper, against their real servers: PostgreSQL, MariaDB, DynamoDB's API (moto).

What each must do is one conversation: two questions at once and one after them, answered by three processes that share
nothing but the databases; an answer that nobody delivered; a double answer; a raw resume.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, nullcontext
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langgraph.checkpoint.postgres import PostgresSaver, ShallowPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.shallow import AsyncShallowPostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from symfonic_interrupts import Interrupts, KeyRing, ResumeRefused, TokenConsumed
from tests.harness import CONFIG, KEY, Bench, Decision, Refund, SetClock, thread

pytestmark = pytest.mark.filterwarnings("ignore:(Async)?ShallowPostgresSaver is deprecated")


YES = {"approved": True}


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Process:
    """What one process has: its own library objects and its own saver, over databases that all share."""

    def __init__(self, saver: Any, store_url: str, mode: str) -> None:
        interrupts = Interrupts(store_url, keys=KeyRing([KEY]), config=CONFIG)
        point = interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)

        def asks(order: str) -> Any:
            def node(state: State) -> dict[str, Any]:
                return {"log": [f"{order}:{point.pause(Refund(order=order, amount=1)).approved}"]}

            return node

        builder = StateGraph(State)
        for order in ("A", "B", "C"):
            builder.add_node(order, asks(order))
        builder.add_edge(START, "A").add_edge(START, "B").add_edge(["A", "B"], "C")
        self.interrupts = interrupts
        self.graph = builder.compile(checkpointer=interrupts.checkpointer(saver))
        self.adapter = interrupts.resume_adapter(self.graph)
        self._bench = Bench(mode, store_url, interrupts, saver, SetClock())

    async def call(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return await self._bench.call(target, method, *args, **kwargs)

    async def open(self) -> dict[str, Any]:
        return {event.payload["order"]: event for event in await self.call(self.adapter, "pending")}

    def states(self) -> list[str]:
        return self._bench.states()


async def converse(savers: Callable[[], Any], store_url: str, mode: str, *, deletes: bool = True) -> None:
    """The conversation.

    Args:
        savers: makes a saver, each time a new one over the same data.
        deletes: the saver can delete a thread.
    """
    here = thread(uuid4().hex)
    first = Process(savers(), store_url, mode)
    first.interrupts.create_schema()
    await first.call(first.graph, "invoke", {"log": []}, here)
    asked = await first.open()
    assert sorted(asked) == ["A", "B"]
    first.interrupts.close()

    second = Process(savers(), store_url, mode)
    ids = [each.id for each in (await second.call(second.graph, "get_state", here)).interrupts]
    assert len(ids) == 2
    with pytest.raises(ResumeRefused):
        await second.call(second.graph, "invoke", Command(resume=dict.fromkeys(ids, YES)), here)
    assert second.states() == ["pending", "pending"]
    await second.call(second.adapter, "answer", asked["B"].pause_token, {"approved": False})  # and dies
    second.interrupts.close()

    third = Process(savers(), store_url, mode)
    await third.call(third.adapter, "invoke", asked["A"].pause_token, YES)
    (last,) = (await third.open()).values()
    assert last.payload["order"] == "C"
    with pytest.raises(TokenConsumed):
        await third.call(third.adapter, "invoke", asked["B"].pause_token, YES)
    served = third.adapter.as_graph()
    output = await third.call(served, "invoke", Command(resume={last.interrupt_id: YES}), here)
    assert sorted(output["log"]) == ["A:True", "B:False", "C:True"]
    assert third.states() == ["applied", "applied", "applied"]
    with nullcontext() if deletes else pytest.raises(NotImplementedError):
        await third.call(third.graph.checkpointer, "delete_thread", here["configurable"]["thread_id"])
    if deletes:
        assert (await third.call(third.graph, "get_state", here)).values == {}
    third.interrupts.close()


# -- PostgreSQL


POOLED = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


@pytest.mark.parametrize("kind", [PostgresSaver, ShallowPostgresSaver], ids=["full", "shallow"])
async def test_postgres_with_a_pool(kind: Any, postgres_url: str) -> None:
    url = postgres_url.replace("postgresql+psycopg://", "postgresql://", 1)
    with ConnectionPool(url, max_size=4, kwargs=POOLED, open=True) as pool:
        kind(pool).setup()
        await converse(lambda: kind(pool), postgres_url, "sync", deletes=kind is PostgresSaver)


@pytest.mark.parametrize("kind", [AsyncPostgresSaver, AsyncShallowPostgresSaver], ids=["full", "shallow"])
async def test_postgres_with_a_pool_async(kind: Any, postgres_url: str) -> None:
    url = postgres_url.replace("postgresql+psycopg://", "postgresql://", 1)
    async with AsyncConnectionPool(url, max_size=4, kwargs=POOLED, open=False) as pool:
        await kind(pool).setup()
        await converse(lambda: kind(pool), postgres_url, "async", deletes=kind is AsyncPostgresSaver)


# -- MySQL


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    """The URL of a MariaDB database; skips where there is none."""
    pytest.importorskip("langgraph.checkpoint.mysql", reason="langgraph-checkpoint-mysql is not installed")
    pytest.importorskip("pymysql", reason="pymysql is not installed")
    from tests.compat.mysql_server import NotInstalled, running_mysql

    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_mysql())
        except NotInstalled as error:
            pytest.skip(str(error))
        yield url


async def test_mysql(mysql_url: str, sqlite_url: str) -> None:
    mysql = pytest.importorskip("langgraph.checkpoint.mysql.pymysql")
    with ExitStack() as stack:

        def saver() -> Any:
            return stack.enter_context(mysql.PyMySQLSaver.from_conn_string(mysql_url))

        saver().setup()
        await converse(saver, sqlite_url, "sync")


async def test_mysql_async(mysql_url: str, sqlite_url: str) -> None:
    mysql = pytest.importorskip("langgraph.checkpoint.mysql.asyncmy", reason="asyncmy is not installed")
    async with AsyncExitStack() as stack:
        savers = [await stack.enter_async_context(mysql.AsyncMySaver.from_conn_string(mysql_url)) for _ in range(3)]
        await savers[0].setup()
        await converse(iter(savers).__next__, sqlite_url, "async")


# -- DynamoDB


@pytest.fixture(scope="session")
def dynamodb_url() -> Iterator[str]:
    """The address of a server that speaks DynamoDB's API, on a port of this machine; skips where moto is missing."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_dynamodb(dynamodb_url: str, sqlite_url: str, mode: str) -> None:
    aws = pytest.importorskip("langgraph_checkpoint_aws", reason="langgraph-checkpoint-aws is not installed")
    boto3 = pytest.importorskip("boto3")
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-central-1")
    table = f"checkpoints-{uuid4().hex}"
    keys = [("PK", "HASH"), ("SK", "RANGE")]
    client = session.client("dynamodb", endpoint_url=dynamodb_url)
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )

    def saver() -> Any:
        return aws.DynamoDBSaver(table, session=session, endpoint_url=dynamodb_url)

    await converse(saver, sqlite_url, mode)
