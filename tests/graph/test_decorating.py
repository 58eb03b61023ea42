"""A decorator refuses what cannot work when it is applied, and lets pass what does."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypedDict, TypeVar, Union

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from symfonic_interrupts import InterruptPoint, Interrupts, RegistrationError
from tests.harness import Decision, Refund


class State(TypedDict, total=False):
    asked: bool
    said: str


class Other(BaseModel):
    number: int


class MoreThanDecision(Decision):
    more: int = 0


class Approves(Protocol):
    approved: bool


class AsDict(TypedDict):
    approved: bool


def show(state: State) -> Refund:
    return Refund(order="A", amount=1)


async def ashow(state: State) -> Refund:
    return Refund(order="awaited", amount=1)


@pytest.fixture
def interrupts(tmp_path: Path) -> Iterator[Interrupts]:
    with Interrupts.local(tmp_path / "i.db") as hub:
        yield hub


@pytest.fixture
def point(interrupts: Interrupts) -> InterruptPoint[Refund, Decision]:
    return interrupts.register_interrupt("approval", payload_schema=Refund, response_schema=Decision)


def answered(interrupts: Interrupts, node: Any) -> str:
    """What a graph of this node says once it is approved."""
    builder = StateGraph(State).add_node("gate", node).add_edge(START, "gate")
    graph = builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)
    graph.invoke({}, {"configurable": {"thread_id": "t1"}})
    (event,) = adapter.pending()
    said: str = adapter.invoke(event.pause_token, {"approved": True, "note": "yes"})["said"]
    return said


# -- functions


class Nodes:
    def method(self, state: State, decision: Decision) -> State:
        return {"said": decision.note}

    @classmethod
    def of_class(cls, state: State, decision: Decision) -> State:
        return {"said": decision.note}

    def __call__(self, state: State, decision: Decision) -> State:
        return {"said": f"called {decision.note}"}


class AsyncCall:
    async def __call__(self, state: State, decision: Decision) -> State:
        return {}


def generator(state: State, decision: Decision) -> Iterator[State]:
    yield {}


async def async_generator(state: State, decision: Decision) -> Any:
    yield {}


class Generates:
    def __call__(self, state: State, decision: Decision) -> Iterator[State]:
        yield {}


UNFIT: dict[str, tuple[Any, str]] = {
    "method": (Nodes.method, "a method cannot be decorated"),
    "partial of a method": (functools.partial(Nodes.method), "a method cannot be decorated"),
    "staticmethod": (staticmethod(lambda state, decision: {}), "a staticmethod cannot be decorated"),
    "classmethod": (vars(Nodes)["of_class"], "a classmethod cannot be decorated"),
    "class": (Nodes, "not type"),
    "no function": ({}, "not dict"),
    "async object": (AsyncCall(), "async __call__"),
    "partial of an async object": (functools.partial(AsyncCall()), "async __call__"),
    "generator": (generator, "a generator would never run"),
    "async generator": (async_generator, "a generator would never run"),
    "generator object": (Generates(), "a generator would never run"),
    "state second": (lambda decision, state: {}, r"not \(decision, state\)"),
    "state third": (lambda decision, config, state: {}, r"not \(decision, config, state\)"),
    "decision third": (lambda state, config, decision: {}, r"not \(state, config, decision\)"),
    "no decision": (lambda state, runtime: {}, r"not \(state, runtime\)"),
    "unknown parameter": (lambda state, decision, database: {}, "nobody gives a node the parameter database"),
    "unknown keyword": (lambda state, decision, *, database: {}, "nobody gives a node the parameter database"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_function_that_cannot_be_a_points_node_is_refused_when_it_is_decorated(
    case: str, point: InterruptPoint[Refund, Decision]
) -> None:
    function, reason = UNFIT[case]
    with pytest.raises(RegistrationError, match=rf"^approval: .*{reason}"):
        point.node(show)(function)


def with_default(state: State, decision: Decision, config: RunnableConfig, *, prefix: str = "default") -> State:
    return {"said": f"{prefix} {decision.note} {config['configurable']['thread_id']}"}


def wrapped(state: State, decision: Decision) -> State:
    return {"said": decision.note}


@functools.wraps(wrapped)
def wrapper(*args: Any, **kwargs: Any) -> Any:
    return {"said": "wrapped " + wrapped(*args, **kwargs)["said"]}


FIT: dict[str, tuple[Any, str]] = {
    "lambda": (lambda state, d: {"said": d.note}, "yes"),
    "bound method": (Nodes().method, "yes"),
    "bound classmethod": (Nodes.of_class, "yes"),
    "object": (Nodes(), "called yes"),
    "partial": (functools.partial(with_default, prefix="partial"), "partial yes t1"),
    "default": (with_default, "default yes t1"),
    "wrapper": (wrapper, "wrapped yes"),
    "keywords": (lambda state, decision, **injected: {"said": decision.note}, "yes"),
}


@pytest.mark.parametrize("case", FIT)
def test_a_function_that_can_be_a_points_node_is_one(
    case: str, interrupts: Interrupts, point: InterruptPoint[Refund, Decision]
) -> None:
    function, said = FIT[case]
    assert answered(interrupts, point.node(show)(function)) == said


def test_a_static_method_is_decorated_below_its_staticmethod(
    interrupts: Interrupts, point: InterruptPoint[Refund, Decision]
) -> None:
    class Holder:
        @staticmethod
        @point.node(show)
        def review(state: State, decision: Decision) -> State:
            return {"said": decision.note}

    assert answered(interrupts, Holder.review) == "yes"


# -- payload= and when=


class Asks:
    async def __call__(self, state: State) -> bool:
        return False


async def never(state: State) -> bool:
    return False


@pytest.mark.parametrize("when", [never, Asks(), functools.partial(never)], ids=["function", "object", "partial"])
def test_an_async_when_is_refused_before_anything_is_registered(interrupts: Interrupts, when: Any) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: when= must not be async"):
        interrupts.interrupt_point("approval", payload_schema=Refund, response_schema=Decision, payload=show, when=when)
    assert list(interrupts.registrations) == ["ask_user"]


def test_a_when_that_returns_an_awaitable_asks_nobody(
    interrupts: Interrupts, point: InterruptPoint[Refund, Decision]
) -> None:
    node = point.node(show, when=lambda state: never(state))(lambda state, decision: {})  # type: ignore[arg-type,return-value]
    builder = StateGraph(State).add_node("gate", node).add_edge(START, "gate")
    graph = builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)

    with pytest.raises(RegistrationError, match="when= returned an awaitable"):
        graph.invoke({}, {"configurable": {"thread_id": "t1"}})
    assert adapter.pending() == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"payload": None}, "payload= must be a function of the state, not NoneType"),
        ({"payload": lambda: None}, "payload= must be a function of one argument"),
        ({"payload": show, "when": True}, "when= must be a function of the state, not bool"),
        ({"payload": show, "when": lambda state, more: True}, "when= must be a function of one argument"),
    ],
)
def test_what_cannot_be_called_with_the_state_is_refused(
    point: InterruptPoint[Refund, Decision], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RegistrationError, match=f"^approval: {reason}"):
        point.node(**options)


class Shows:
    async def __call__(self, state: State) -> Refund:
        return Refund(order="A", amount=1)


@pytest.mark.parametrize("payload", [ashow, Shows(), functools.partial(ashow)], ids=["function", "object", "partial"])
def test_an_async_payload_under_a_sync_function_is_refused(
    point: InterruptPoint[Refund, Decision], payload: Any
) -> None:
    with pytest.raises(RegistrationError, match="an async payload= needs an async node function"):
        point.node(payload)(lambda state, decision: {})


async def test_an_async_payload_of_interrupt_point_is_awaited(interrupts: Interrupts) -> None:
    @interrupts.interrupt_point("approval", payload_schema=Refund, response_schema=Decision, payload=ashow)
    async def gate(state: State, decision: Decision) -> State:
        return {"said": decision.note}

    builder = StateGraph(State).add_node("gate", gate).add_edge(START, "gate")
    graph = builder.compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
    adapter = interrupts.resume_adapter(graph)
    await graph.ainvoke({}, {"configurable": {"thread_id": "t1"}})
    (event,) = await adapter.apending()

    assert event.payload["order"] == "awaited"
    assert (await adapter.ainvoke(event.pause_token, {"approved": True, "note": "yes"}))["said"] == "yes"


# -- what the decision is annotated as

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    value: T


def taking(annotation: Any) -> Callable[..., Any]:
    def review(state: State, decision: Any) -> State:
        return {}

    review.__annotations__["decision"] = annotation
    return review


OLD_STYLE: Any = Union[Decision, None]  # noqa: UP007
ALWAYS: list[Any] = [Decision, Decision | None, OLD_STYLE, Decision | Other, BaseModel, "Decision", "Unknown", Any]
ALWAYS += [object, T, Approves, Annotated[Decision, "shown"], "Decision | None"]
WRONG: list[Any] = [Other, Other | None, dict, dict[str, Any], str, "Other", "Other | None", None, AsDict]
WRONG += [MoreThanDecision, Annotated[Other, "shown"], list[Decision], Refund]


@pytest.mark.parametrize("annotation", ALWAYS, ids=str)
def test_a_decision_may_be_annotated_as_what_it_is(point: InterruptPoint[Refund, Decision], annotation: Any) -> None:
    point.node(show)(taking(annotation))


@pytest.mark.parametrize("annotation", WRONG, ids=str)
def test_a_decision_annotated_as_another_type_is_refused(
    point: InterruptPoint[Refund, Decision], annotation: Any
) -> None:
    with pytest.raises(RegistrationError, match=r"^approval: decision must be annotated Decision, the response_schema"):
        point.node(show)(taking(annotation))


@pytest.mark.parametrize("annotation", [Decision, "Decision", BaseModel, Decision | Other], ids=str)
def test_where_a_node_need_not_ask_its_decision_may_be_none(
    point: InterruptPoint[Refund, Decision], annotation: Any
) -> None:
    with pytest.raises(RegistrationError, match=r"annotated Decision \| None: it is None where when= says"):
        point.node(show, when=lambda state: False)(taking(annotation))
    point.node(show, when=lambda state: False)(taking(Decision | None))
    point.node(show, when=lambda state: False)(taking("Decision | None"))
    point.node(show, when=lambda state: False)(lambda state, decision: {})


def test_a_generic_response_is_told_from_another_of_its_kind(interrupts: Interrupts) -> None:
    numbers = interrupts.register_interrupt("numbers", payload_schema=Refund, response_schema=Box[int])

    numbers.node(show)(taking(Box[int]))
    numbers.node(show)(taking(Box))
    with pytest.raises(RegistrationError, match="decision must be annotated"):
        numbers.node(show)(taking(Box[str]))


def test_a_state_annotated_as_the_response_is_refused(point: InterruptPoint[Refund, Decision]) -> None:
    def swapped(first: Decision, second: Any) -> State:
        return {}

    with pytest.raises(RegistrationError, match="the first parameter is the state"):
        point.node(show)(swapped)


def test_a_model_that_was_defined_again_is_named(point: InterruptPoint[Refund, Decision]) -> None:
    again = type("Decision", (BaseModel,), {"__annotations__": {"approved": bool}})

    with pytest.raises(RegistrationError, match=r"of the same name .* register the point again"):
        point.node(show)(taking(again))


# -- what type checkers say

USES = """
from datetime import timedelta
from typing import TypedDict

from langgraph.graph import StateGraph
from pydantic import BaseModel

from symfonic_interrupts import Interrupts


class Refund(BaseModel):
    order: str


class Decision(BaseModel):
    approved: bool


class State(TypedDict):
    order: str


def check(response: Decision, payload: Refund) -> None: ...
def show(state: State) -> Refund: ...
async def ashow(state: State) -> Refund: ...
async def shows_another(state: State) -> Decision: ...


def right(hub: Interrupts, builder: StateGraph[State, None, State, State]) -> None:
    @hub.interrupt_point("a", payload_schema=Refund, response_schema=Decision, payload=show)
    def one(state: State, decision: Decision) -> State: ...

    @hub.interrupt_point(
        "b", payload_schema=Refund, response_schema=Decision, payload=ashow, ttl=timedelta(hours=1), nodes=("x",),
        validate_response=check, on_expire=Decision(approved=False), metadata={"team": "a"}, cross_scope_allowed=True,
    )
    async def two(state: State, decision: Decision) -> State: ...

    @hub.interrupt_point(
        "c", payload_schema=Refund, response_schema=Decision, payload=lambda state: Refund(order=state["order"]),
        when=lambda state: bool(state["order"]),
    )
    def three(state: State, decision: Decision | None) -> State: ...

    builder.add_node("one", one)
    builder.add_node("two", two)
    builder.add_node("three", three)


def wrong(hub: Interrupts) -> None:
    hub.interrupt_point("a", payload_schema=Refund, response_schema=Decision, payload=show, tll=timedelta(hours=1))
    hub.interrupt_point("a", payload_schema=Refund, response_schema=Decision, payload=show, ttl=60)
    hub.interrupt_point("a", payload_schema=Refund, response_schema=Decision, payload=shows_another)
    hub.interrupt_point("a", payload_schema=Refund, response_schema=Decision, payload=show, when="always")
"""


@pytest.mark.slow
def test_type_checkers_take_right_uses_and_refuse_wrong_ones(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(USES)
    wrong = USES[: USES.index("def wrong")].count("\n") + 2

    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--disable-error-code=empty-body", "--no-error-summary", str(file)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    found = [line.partition("uses.py:")[2] for line in ran.stdout.splitlines() if ": error: " in line]
    assert [int(line.partition(":")[0]) for line in found] == [wrong, wrong + 1, wrong + 2, wrong + 3], ran
    assert 'Unexpected keyword argument "tll"' in found[0]
