"""The envelope: what a delivery resumes a task with, and what LangGraph's `response_schema` lets pass.

It accepts authentic receipts of the running task and no more. A raw `Command(resume=...)`, and a receipt carried over from
another task, thread or graph, fail LangGraph's own validation, so the pause stays open. Whether an answer fits the payload that
is asked now is decided where it is taken: refusing it here would refuse it for ever.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from langgraph.config import get_config
from langgraph.runtime import get_runtime
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, PrivateAttr, model_validator
from pydantic_core import CoreSchema

from symfonic_interrupts.engine import langgraph_names as names
from symfonic_interrupts.engine.context import Engine
from symfonic_interrupts.engine.questions import Answer
from symfonic_interrupts.errors import ReceiptInvalid
from symfonic_interrupts.tokens.receipt import Receipt

REFUSED = "this pause is answered with its token, through the resume adapter"


def seal(answers: list[Answer]) -> dict[str, Any]:
    """The resume value, as JSON data, that brings these answers to their task."""
    return {"answers": [{"response": answer.response, "receipt": answer.sealed} for answer in answers]}


def jtis_in(resume: Any) -> list[str]:
    """The tokens whose answers stand in the value of a RESUME write. Whatever is no envelope is passed over."""
    found = []
    for value in resume if isinstance(resume, list | tuple) else [resume]:
        if isinstance(value, dict) and set(value) == {"answers"} and isinstance(value["answers"], list):
            for item in value["answers"]:
                if isinstance(item, dict) and isinstance(receipt := item.get("receipt"), dict):
                    found.append(str(receipt.get("jti")))
    return found


class _Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, strict=True)
    response: str
    receipt: dict[str, Any]


class Envelope(BaseModel):
    """Base of the resume values of one point; `of` makes the class for it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    engine: ClassVar[Engine]
    response_schema: ClassVar[type[BaseModel]]
    response_json_schema: ClassVar[dict[str, Any]]

    answers: list[_Sealed]
    _opened: list[Answer] = PrivateAttr(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _is_an_envelope(cls, value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != {"answers"} or not value["answers"]:
            raise ValueError(REFUSED)
        return value

    @model_validator(mode="after")
    def _is_for_this_task(self) -> Self:
        info = get_runtime().execution_info
        configurable = get_config()["configurable"]
        saver = names.checkpointer_of(configurable)
        audience = self.engine.audience(str(getattr(saver, "graph", "")))
        for item in self.answers:
            try:
                receipt = Receipt.unseal(item.receipt, self.engine.keys)
            except ReceiptInvalid:
                raise ValueError(REFUSED) from None
            task_id = None if info is None else names.running_task_id(configurable, info.task_id)
            if info is None or receipt.task_id != task_id or receipt.thread_id != str(info.thread_id):
                raise ValueError("a receipt belongs to another task; " + REFUSED)
            if receipt.audience != audience or not receipt.covers(item.response):
                raise ValueError("a receipt does not fit its answer; " + REFUSED)
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
    def of(cls, engine: Engine, response_schema: type[BaseModel]) -> type[Envelope]:
        """The envelope class whose JSON Schema is that of `response_schema`."""
        return type(
            f"{response_schema.__name__}Envelope",
            (cls,),
            {
                "__module__": __name__,
                "engine": engine,
                "response_schema": response_schema,
                "response_json_schema": response_schema.model_json_schema(),
            },
        )
