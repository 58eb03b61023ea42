"""The wrapped saver does exactly what the bare one does, by LangGraph's own conformance suite and method by method."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import DetectedCapabilities
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from symfonic_interrupts import Interrupts, InterruptSaver
from tests.harness import CONFIG, KEY, KeyRing

SAVERS = ["memory", "sqlite", "aiosqlite"] + [
    pytest.param(name, marks=pytest.mark.postgres) for name in ("postgres", "apostgres")
]


async def open_saver(kind: str, stack: AsyncExitStack, path: str, url: str) -> BaseCheckpointSaver[Any]:
    if kind == "memory":
        return InMemorySaver()
    if kind == "sqlite":
        return stack.enter_context(SqliteSaver.from_conn_string(path))
    if kind == "aiosqlite":
        return await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
    if kind == "postgres":
        sync = stack.enter_context(PostgresSaver.from_conn_string(url))
        sync.setup()
        return sync
    saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
    await saver.setup()
    return saver


class InThreads(BaseCheckpointSaver[Any]):
    """A sync saver behind async methods, for the suite calls nothing else."""

    def __init__(self, sync: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=sync.serde)
        self._sync = sync

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._sync.put, *args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._sync.put_writes, *args, **kwargs)

    async def aget_tuple(self, config: Any) -> Any:
        return await asyncio.to_thread(self._sync.get_tuple, config)

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for found in await asyncio.to_thread(lambda: list(self._sync.list(*args, **kwargs))):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self._sync.delete_thread, thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._sync.get_next_version(current, channel)


@pytest.mark.parametrize("kind", SAVERS)
async def test_langgraphs_suite_gives_the_same_report_wrapped_and_bare(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = ""
    if kind.endswith("postgres"):
        url = request.getfixturevalue("postgres_url").replace("postgresql+psycopg://", "postgresql://", 1)
    interrupts = Interrupts(f"sqlite:///{tmp_path / 'i.db'}", keys=KeyRing([KEY]), config=CONFIG)
    reports = []
    capabilities: set[str] = set()
    for wrap in (False, True):
        made = [0]

        @checkpointer_test(name=f"{kind} {wrap}")
        async def savers(wrap: bool = wrap, made: list[int] = made) -> AsyncIterator[BaseCheckpointSaver[Any]]:
            made[0] += 1
            async with AsyncExitStack() as stack:
                bare = await open_saver(kind, stack, str(tmp_path / f"{wrap}{made[0]}.db"), url)
                saver = interrupts.checkpointer(bare) if wrap else bare
                saver = InThreads(saver) if kind in ("sqlite", "postgres") else saver
                detected = DetectedCapabilities.from_instance(
                    saver if kind in ("sqlite", "postgres") else bare
                ).detected
                capabilities.update(capability.value for capability in detected)
                yield saver

        report = await validate(savers, capabilities=set(capabilities) or None)
        reports.append(
            {name: (r.tests_passed, r.tests_failed) for name, r in report.results.items() if name in capabilities}
        )
    interrupts.close()

    bare, wrapped = reports
    assert wrapped == bare
    assert sum(passed for passed, _ in bare.values()) > 50


OPTIONAL = {
    prefix + name for name in ("delete_thread", "copy_thread", "delete_for_runs", "prune") for prefix in ("", "a")
}


def has(saver: BaseCheckpointSaver[Any], name: str) -> bool:
    """How LangGraph's server and its conformance suite find out what a saver can do."""
    return getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name)


def test_every_method_of_the_base_class_is_passed_on_or_optional() -> None:
    public = {
        name
        for name, member in inspect.getmembers(BaseCheckpointSaver)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }
    inherited = {"get", "aget"}  # made of get_tuple and aget_tuple

    missing = {name for name in public - inherited if name not in vars(InterruptSaver)}

    assert missing == OPTIONAL


class Able(InMemorySaver):
    """A saver that has every optional method, and notes what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.calls.append(("copy_thread", source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.calls.append(("acopy_thread", source_thread_id, target_thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.calls.append(("delete_for_runs", *run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.calls.append(("adelete_for_runs", *run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.calls.append(("prune", *thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.calls.append(("aprune", *thread_ids, strategy))


class CopiesOnly(InMemorySaver):
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        pass


class Undeleting(BaseCheckpointSaver[Any]):
    """A saver with none of the optional methods, `delete_thread` among them."""


@pytest.mark.parametrize(
    ("inner", "able"),
    [
        (InMemorySaver(), {"delete_thread", "adelete_thread"}),
        (SqliteSaver(None), {"delete_thread"}),  # type: ignore[arg-type]  # never used
        (CopiesOnly(), {"delete_thread", "adelete_thread", "acopy_thread"}),
        (Able(), OPTIONAL),
        (Undeleting(), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_wrapper_has_the_optional_methods_that_the_wrapped_saver_has(
    inner: BaseCheckpointSaver[Any], able: set[str], tmp_path: Path
) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(inner)

        assert {name for name in OPTIONAL if has(wrapped, name)} == able
        assert isinstance(wrapped, InterruptSaver)
        assert type(wrapped).__name__ == "InterruptSaver"
        for name in OPTIONAL:
            method = getattr(wrapped, name)
            assert inspect.iscoroutinefunction(method) is name.startswith("a")
            assert inspect.signature(method) == inspect.signature(getattr(inner, name))


def test_an_optional_method_of_the_instance_alone_is_found_too(tmp_path: Path) -> None:
    inner, copied = InMemorySaver(), []
    inner.copy_thread = lambda source, target: copied.append((source, target))  # type: ignore[method-assign]
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(inner)

        assert has(wrapped, "copy_thread")
        wrapped.copy_thread("t1", "t2")
    assert copied == [("t1", "t2")]


async def test_each_optional_method_reaches_the_wrapped_saver_with_its_arguments(tmp_path: Path) -> None:
    inner = Able()
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(inner)
        wrapped.copy_thread("t1", "t2")
        await wrapped.acopy_thread("t1", target_thread_id="t2")
        wrapped.delete_for_runs(["r"])
        await wrapped.adelete_for_runs(["r"])
        wrapped.prune(["t1"])
        await wrapped.aprune(["t1", "t2"], strategy="delete")

    assert inner.calls == [
        ("copy_thread", "t1", "t2"),
        ("acopy_thread", "t1", "t2"),
        ("delete_for_runs", "r"),
        ("adelete_for_runs", "r"),
        ("prune", "t1", "keep_latest"),
        ("aprune", "t1", "t2", "delete"),
    ]


def test_where_the_wrapped_saver_lacks_a_method_the_base_class_says_so(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(InMemorySaver())
        with pytest.raises(NotImplementedError):
            wrapped.copy_thread("t1", "t2")


def test_a_wrapper_can_be_copied(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(Able())
        twin = copy.copy(wrapped)

        assert type(twin) is type(wrapped)
        assert twin.inner is wrapped.inner


def test_attributes_that_only_the_inner_saver_has_are_reached(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts, SqliteSaver.from_conn_string(":memory:") as inner:
        wrapped = interrupts.checkpointer(inner)
        assert wrapped.conn is inner.conn
        assert wrapped.setup == inner.setup
        assert wrapped.serde is inner.serde
        assert wrapped.config_specs == inner.config_specs
        with pytest.raises(AttributeError):
            wrapped.nothing_of_the_kind  # noqa: B018


def test_a_clone_with_an_allowlist_is_wrapped_too(tmp_path: Path) -> None:
    with Interrupts.local(tmp_path / "x.db") as interrupts:
        wrapped = interrupts.checkpointer(
            InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)), graph="g"
        )
        clone = wrapped.with_allowlist([("tests.harness", "Refund")])
        assert isinstance(clone, InterruptSaver)
        assert (clone.hub is wrapped.hub, clone.graph) == (True, "g")
        assert clone.inner is not wrapped.inner
