"""What `--graph` names in these tests: a shop that asks for a refund, an interview or a carrier. Places come from variables.

`SHOP_STORE` is the pause store's URL, `SHOP_CHECKPOINTS` an SQLite file or PostgreSQL.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field

from symfonic_interrupts import (
    AskUserOption,
    AskUserQuestion,
    AskUserRequest,
    FrameworkConfig,
    FrameworkTenantScope,
    Interrupts,
    KeyRing,
    ResumeAdapter,
)
from symfonic_interrupts.clock import Clock, system_clock


class Refund(BaseModel):
    order: str
    amount: int


class Decision(BaseModel):
    approved: bool
    note: str = ""


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


class Address(BaseModel):
    street: str
    number: int | None = None


class Card(BaseModel):
    kind: Literal["card"] = "card"
    digits: Annotated[str, Field(pattern=r"^[0-9]{4}$")]


class Transfer(BaseModel):
    kind: Literal["transfer"] = "transfer"
    iban: str


class Interview(BaseModel):
    name: Annotated[str, Field(min_length=2)]
    age: Annotated[int, Field(ge=18, le=120, description="in years")]
    height: float | None = None
    speed: Speed = Speed.SLOW
    since: date | None = None
    tags: Annotated[list[str], Field(max_length=3)] = []
    address: Address
    former: Address | None = None
    pay: Card | Transfer
    extra: dict[str, Any] = {}


class State(TypedDict, total=False):
    ask: str
    order: str
    result: str


CONFIG = FrameworkConfig(
    experimental_interrupt=True, default_scope=FrameworkTenantScope("acme"), lease_ttl=timedelta(seconds=1)
)
STRICT = FrameworkConfig(experimental_interrupt=True)


def check(decision: Decision, refund: Refund) -> None:
    if not decision.approved and not decision.note:
        raise ValueError("a refusal needs a note")


def build(interrupts: Interrupts) -> StateGraph[State]:
    point = interrupts.register_interrupt(
        "refund_approval", payload_schema=Refund, response_schema=Decision, validate_response=check
    )
    timed = interrupts.register_interrupt(
        "timed",
        payload_schema=Refund,
        response_schema=Decision,
        ttl=timedelta(minutes=15),
        on_expire=Decision(approved=False, note="too late"),
    )
    interview = interrupts.register_interrupt("interview", payload_schema=Refund, response_schema=Interview)

    def refund_node(state: State) -> State:
        decision = point.pause(Refund(order=state["order"], amount=90))
        print("a node prints", flush=True)
        if os.environ.get("SHOP_STUCK"):
            time.sleep(600)
        if decision.note == "fail":
            raise RuntimeError("secret of the order")
        return {"result": "paid" if decision.approved else f"not paid: {decision.note}"}

    def timed_node(state: State) -> State:
        return {"result": timed.pause(Refund(order=state["order"], amount=1)).note}

    def interview_node(state: State) -> State:
        return {"result": interview.pause(Refund(order=state["order"], amount=2)).model_dump_json()}

    def carrier_node(state: State) -> State:
        options = (AskUserOption(label="Post"), AskUserOption(label="Courier", description="by bike"))
        carrier = AskUserQuestion(question="Which carrier?", options=options)
        extras = AskUserQuestion(question="Extras?", options=options, multi_select=True, allow_other=True)
        response = interrupts.ask_user.pause(AskUserRequest(questions=(carrier, extras)))
        return {"result": response.model_dump_json()}

    builder = StateGraph(State)
    for name, node in (
        ("refund", refund_node),
        ("timed", timed_node),
        ("interview", interview_node),
        ("carrier", carrier_node),
    ):
        builder.add_node(name, node)
    return builder.add_conditional_edges(START, lambda state: state["ask"])


@contextmanager
def shop(clock: Clock = system_clock, config: FrameworkConfig = CONFIG) -> Iterator[ResumeAdapter]:
    """The shop on the sync savers."""
    checkpoints = os.environ["SHOP_CHECKPOINTS"]
    kind: Any = PostgresSaver if checkpoints.startswith("postgresql") else SqliteSaver
    keys = KeyRing.from_env("SYMFONIC_INTERRUPTS_KEYS")
    with Interrupts(os.environ["SHOP_STORE"], keys=keys, config=config, clock=clock) as interrupts:
        interrupts.create_schema()
        with kind.from_conn_string(checkpoints) as saver:
            if kind is PostgresSaver:
                saver.setup()
            graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver, graph="shop"))
            yield interrupts.resume_adapter(graph)


def strict_shop() -> Any:
    """The shop, where every call names its tenant."""
    return shop(config=STRICT)


@asynccontextmanager
async def async_shop() -> AsyncIterator[ResumeAdapter]:
    """The shop on the async savers, which serve coroutines only."""
    checkpoints = os.environ["SHOP_CHECKPOINTS"]
    kind: Any = AsyncPostgresSaver if checkpoints.startswith("postgresql") else AsyncSqliteSaver
    keys = KeyRing.from_env("SYMFONIC_INTERRUPTS_KEYS")
    async with Interrupts(os.environ["SHOP_STORE"], keys=keys, config=CONFIG) as interrupts:
        await interrupts.acreate_schema()
        async with kind.from_conn_string(checkpoints) as saver:
            if kind is AsyncPostgresSaver:
                await saver.setup()
            graph = build(interrupts).compile(checkpointer=interrupts.checkpointer(saver, graph="shop"))
            yield interrupts.resume_adapter(graph)


def needs_an_argument(_place: str) -> None:
    """Not for --graph."""


def refuses() -> ResumeAdapter:
    """A function that the library refuses something."""
    KeyRing.from_env("NO_SUCH_VARIABLE")
    raise AssertionError


def breaks() -> ResumeAdapter:
    """A function with a bug."""
    raise LookupError("the config has no section [shop]")


nothing = 17
