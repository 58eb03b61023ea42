"""The envelope: what a delivery resumes a task with, and what LangGraph's `response_schema` lets pass.

It accepts authentic receipts of the running task that may count: sent by the delivery that runs it, or loaded
from the thread's newest checkpoint as answers that are still on their way. A raw `Command(resume=...)`, a receipt carried over
from elsewhere, and a copy of a genuine one all fail, so the pause stays open. Whether an answer fits the payload that is asked
now is decided where it is taken: refusing it here would refuse it for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from langgraph.config import get_config
from langgraph.runtime import get_runtime
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, PrivateAttr, model_validator
from pydantic_core import CoreSchema

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.core.delivery_run import delivery_run_of
from symfonic_interrupts.core.executions import Answer
from symfonic_interrupts.core.hub import Hub
from symfonic_interrupts.errors import ReceiptInvalid
from symfonic_interrupts.tokens.receipt import Receipt

REFUSED = "this pause is answered with its token, through the resume adapter"


def seal(answers: list[Answer]) -> dict[str, Any]:
    """The resume value, as JSON data, that brings these answers to their task."""
    return {"answers": [{"response": answer.response, "receipt": answer.sealed} for answer in answers]}


VOID: dict[str, Any] = {"answers": []}
"""Takes the slot of a stored answer that counts no more: LangGraph tells the questions of a task apart by their slots.
Only this very object is accepted; an equal one from a client is refused."""


class Loaded(list[Any]):
    """The stored answers of a task, by slot, as the saver handed them to a run. LangGraph appends to this very list what the
    run itself was resumed with, so all after the first `stored` items did not come from the saver.

    Attributes:
        stored: how many items came from the saver.
        admitted: slots of answers that may count.
        jtis: jtis of the answers in envelopes that may count.
    """

    def __init__(self, values: Iterable[Any], *, admitted: Iterable[int] = (), jtis: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.stored = len(self)
        self.admitted = set(admitted)
        self.jtis = frozenset(jtis)

    def cut(self, slot: int) -> None:
        """Drop this slot and all after it."""
        del self[slot:]
        self.stored = min(self.stored, slot)
        self.admitted = {kept for kept in self.admitted if kept < slot}


def is_envelope(value: Any) -> bool:
    """Whether a value has the form of an envelope."""
    return isinstance(value, dict) and set(value) == {"answers"} and isinstance(value["answers"], list)


def answers_in(envelope: dict[str, Any]) -> list[dict[str, Any]]:
    """Those items of an envelope that have the form of an answer."""
    return [a for a in envelope["answers"] if isinstance(a, dict) and isinstance(a.get("receipt"), dict)]


def jtis_in(resume: Any) -> list[str]:
    """The jtis of the answers in the value of a RESUME write. What is no envelope is passed over."""
    values = resume if isinstance(resume, list | tuple) else [resume]
    return [str(a["receipt"].get("jti")) for value in values if is_envelope(value) for a in answers_in(value)]


def admitted_jtis(configurable: Mapping[str, Any], graph: str) -> frozenset[str]:
    """The jtis of the answers that the running task may take.

    Raises:
        ThreadBusy: this run is a delivery that has lost its hold on the thread.
    """
    loaded = names.brought(configurable)
    jtis = loaded.jtis if isinstance(loaded, Loaded) else frozenset()
    run = delivery_run_of({"configurable": configurable}, graph)
    if run is None:
        return jtis
    run.lease.check()
    return jtis | run.brought


class _Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)
    response: str
    receipt: dict[str, Any]


class Envelope(BaseModel):
    """Base of the resume values of one point; `of` makes the class for it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    hub: ClassVar[Hub]
    response_schema: ClassVar[type[BaseModel]]
    response_json_schema: ClassVar[dict[str, Any]]

    answers: list[_Sealed]
    _opened: list[Answer] = PrivateAttr(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _is_an_envelope(cls, value: Any) -> Any:
        if value is not VOID and not (is_envelope(value) and value["answers"]):
            raise ValueError(REFUSED)
        return value

    @model_validator(mode="after")
    def _is_for_this_task(self) -> Self:
        info = get_runtime().execution_info
        configurable = get_config()["configurable"]
        saver = names.checkpointer_of(configurable)
        graph = str(getattr(saver, "graph", ""))
        audience = self.hub.audience(graph)
        admitted = admitted_jtis(configurable, graph) if self.answers else frozenset()
        for item in self.answers:
            try:
                receipt = Receipt.unseal(item.receipt, self.hub.keys)
            except ReceiptInvalid:
                raise ValueError(REFUSED) from None
            task_id = None if info is None else names.running_task_id(configurable, info.task_id)
            if info is None or receipt.task_id != task_id or receipt.thread_id != str(info.thread_id):
                raise ValueError("a receipt belongs to another task; " + REFUSED)
            if receipt.audience != audience or not receipt.covers(item.response):
                raise ValueError("a receipt does not fit its answer; " + REFUSED)
            if receipt.jti not in admitted:
                raise ValueError("a receipt is a proof and not a key; " + REFUSED)
            self._opened.append(Answer(receipt, item.response, item.receipt))
        return self

    @property
    def opened(self) -> list[Answer]:
        """The answers, checked."""
        return self._opened

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # what clients see as the schema of an answer is the author's model; computed once where it needs no definitions
        if "$defs" in cls.response_json_schema:
            return handler(cls.response_schema.__pydantic_core_schema__)
        return cls.response_json_schema

    @classmethod
    def of(cls, hub: Hub, response_schema: type[BaseModel]) -> type[Envelope]:
        """The envelope class whose JSON Schema is that of `response_schema`."""
        return type(
            f"{response_schema.__name__}Envelope",
            (cls,),
            {
                "__module__": __name__,
                "hub": hub,
                "response_schema": response_schema,
                "response_json_schema": response_schema.model_json_schema(),
            },
        )
