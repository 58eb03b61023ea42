"""What a point is: its name, its two schemas, and the rules for answering it. Data and checks, no I/O.

JSON is the only form in which a payload or a response is kept, hashed and handed on. The functions here are the one
way between a model and its canonical JSON text, so what is validated when a person answers is what the node gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from symfonic_interrupts.canonical import canonical_json
from symfonic_interrupts.config import FrameworkConfig
from symfonic_interrupts.errors import (
    FeatureDisabled,
    PayloadInvalid,
    RegistrationError,
    ResponseInvalid,
)
from symfonic_interrupts.event_shapes import EVENT_SHAPES, EventShapes
from symfonic_interrupts.json_models import (
    answer_text,
    changed,
    errors_of,
    model_text,
    payload_from_text,
    payload_from_value,
    payload_text,
    same,
    summary_of,
)
from symfonic_interrupts.presenting import Presents
from symfonic_interrupts.registration_checks import (
    check_metadata,
    check_name,
    check_nodes,
    check_present,
    check_schema,
    check_ttl,
    check_validator,
)

ResponseValidator = Callable[[Any, Any], None]
"""Called with (response, payload), both models; refuses by raising ValueError or AssertionError."""


P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)


class PointOptions(TypedDict, Generic[P, R], total=False):
    """What may be said of a point beside its name and schemas; see `InterruptRegistration`."""

    validate_response: Callable[[R, P], None] | None
    cross_scope_allowed: bool
    metadata: Mapping[str, Any] | None
    ttl: timedelta | None
    on_expire: R | None
    nodes: Sequence[str]
    nodes_of: object | None
    present: Presents | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRegistration:
    """A named place where a graph waits for a person.

    Attributes:
        name: identifier-like, at most 64 characters, unique.
        payload_schema: pydantic model of what is shown.
        response_schema: pydantic model of what may be answered.
        validate_response: further check of (response, payload), raising ValueError; or None.
        cross_scope_allowed: an answer may come from another scope, audited.
        built_in: made by this library; needs no flag, cannot be replaced.
        metadata: anything the author wants shown with the point, JSON data.
        ttl: how long a pause may be answered; None: `FrameworkConfig.default_ttl`.
        on_expire: the answer where nobody answers in time; None: the pause expires.
        nodes: nodes whose native `interrupt()` this point covers: `"node"`, `"sub:node"`, `"graph/node"`. Below a node that
            runs graphs of its own, such as `"tools:agent"`, nobody can see whether they exist.
        nodes_of: an object. With it, `nodes` are meant in every graph and subgraph that has a node running one of its methods,
            as an agent has its middleware's, and nowhere else.
        present: what inboxes of LangChain's shapes are shown, and what their answers mean: a `Presentation`; or None.
        shapes: how its events and its marker look.
    """

    name: str
    payload_schema: type[BaseModel]
    response_schema: type[BaseModel]
    validate_response: ResponseValidator | None = None
    cross_scope_allowed: bool = False
    built_in: bool = False
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    ttl: timedelta | None = None
    on_expire: BaseModel | None = None
    nodes: tuple[str, ...] = ()
    nodes_of: object | None = field(default=None, repr=False, compare=False)
    present: Presents | None = field(default=None, repr=False, compare=False)

    shapes: EventShapes = field(default=EVENT_SHAPES, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        check_schema(self.name, "payload_schema", self.payload_schema)
        check_schema(self.name, "response_schema", self.response_schema)
        check_validator(self.name, self.validate_response)
        check_ttl(self.name, self.ttl)
        check_nodes(self.name, self.nodes)
        check_metadata(self.name, self.metadata)
        check_present(self.name, self.present)
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))
        object.__setattr__(self, "nodes", tuple(self.nodes))
        if self.on_expire is not None:
            try:
                self.response_text(self.on_expire)
            except ResponseInvalid as error:
                raise RegistrationError(f"{self.name}: on_expire does not fit response_schema: {error}") from None

    def check(self, config: FrameworkConfig) -> None:
        """Raise FeatureDisabled or RegistrationError where the settings do not allow this point."""
        if not self.built_in and not config.experimental_interrupt:
            raise FeatureDisabled(f"{self.name}: custom points need FrameworkConfig(experimental_interrupt=True)")
        if self.ttl is not None and self.ttl > config.max_ttl:
            raise RegistrationError(f"{self.name}: ttl is longer than FrameworkConfig.max_ttl ({config.max_ttl})")

    def payload_text(self, payload: Any, *, limit: int | None = None) -> str:
        """The canonical JSON of a payload.

        Args:
            payload: an instance of `payload_schema`.
            limit: most bytes of UTF-8 it may have.

        Raises:
            PayloadInvalid: another model, a value that has no JSON form or does not come back from it, or too large.
        """
        if not isinstance(payload, self.payload_schema):
            raise PayloadInvalid(
                f"{self.name}: payload must be a {self.payload_schema.__name__}, not {type(payload).__name__}"
            )
        text, problem = "", PayloadInvalid("")
        try:
            text = payload_text(payload, self.payload_schema)
        except ValidationError as error:
            message = f"{self.name}: payload does not come back from its own JSON: {summary_of(error)}"
            problem = PayloadInvalid(message, errors=errors_of(error))
        except ValueError as error:
            problem = PayloadInvalid(f"{self.name}: payload: {error}")
        if not text:
            raise problem  # outside: the context would show the value
        _check_size(text, limit, PayloadInvalid, f"{self.name}: payload", "max_payload_bytes")
        return text

    def payload_from_text(self, text: str) -> BaseModel:
        """The payload model from its stored canonical JSON."""
        return payload_from_text(self.payload_schema, text)

    def native_payload(self, value: Any, *, node: str) -> BaseModel:
        """The payload model from the value of a native `interrupt()` in `node`.

        Raises:
            PayloadInvalid: it does not fit; the message names node and field.
        """
        if isinstance(value, self.payload_schema):
            return value
        try:
            return payload_from_value(self.payload_schema, value)
        except ValidationError as error:
            schema = self.payload_schema.__name__
            message = f"{self.name}: interrupt() in node {node!r} does not fit {schema}: {summary_of(error)}"
            problem = PayloadInvalid(message, errors=errors_of(error))
        raise problem

    def presented(self, payload_text: str) -> dict[str, Any]:
        """What the marker shows beside its own keys."""
        if self.present is None:
            return {}
        return dict(self.present.shown(self.payload_from_text(payload_text), json.loads(payload_text)))

    def response_text(
        self, response: Any, *, payload_text: str | None = None, limit: int | None = None, accepted: bool = False
    ) -> str:
        """Validate an answer, and return its canonical JSON.

        Args:
            response: an instance of `response_schema`, or plain JSON data; the latter is kept as it was sent.
            payload_text: the payload's canonical JSON; with it `present` reads the answer, and `validate_response` is called.
            accepted: it is said to be an answer that was accepted already, so `validate_response` is not called.
            limit: most bytes of UTF-8 it may have.

        Raises:
            ResponseInvalid: with pydantic's errors, without the input.
        """
        if payload_text is not None:
            response = self._meant(response, payload_text)
        given = isinstance(response, self.response_schema)
        if isinstance(response, BaseModel) and not given:
            kind, wanted = type(response).__name__, self.response_schema.__name__
            raise ResponseInvalid(f"{self.name}: the answer must be a {wanted} or plain JSON data, not a {kind}")
        problem: ResponseInvalid | None = None
        try:
            text = model_text(response) if given else canonical_json(response)
            _check_size(text, limit, ResponseInvalid, f"{self.name}: response", "max_response_bytes")
            model = self.response_schema.model_validate_json(text)
            if given and not same(model, response):
                raise ValueError(changed(response) + ", or give plain JSON data")
            text = text if given else answer_text(model, text, self.response_schema)
            if payload_text is not None and not accepted:
                self._check_against(model, payload_text)
        except ValidationError as error:
            message = f"{self.name}: the answer does not fit {self.response_schema.__name__}: {summary_of(error)}"
            problem = ResponseInvalid(message, errors=errors_of(error))
        except ValueError as error:
            problem = ResponseInvalid(f"{self.name}: response: {error}")
        if problem is not None:
            raise problem  # outside: the context would show the answer
        return text

    def _meant(self, response: Any, payload: str) -> Any:
        """The answer as the response schema has it, where it was given in the shape of an inbox."""
        if self.present is None or isinstance(response, BaseModel):
            return response
        shown = self._shown(payload)
        try:
            return self.present.read(response, shown, json.loads(payload))
        except ValidationError as error:
            problem = ResponseInvalid(f"{self.name}: response: {summary_of(error)}", errors=errors_of(error))
        except (ValueError, AssertionError) as error:
            problem = ResponseInvalid(f"{self.name}: response: {error or 'refused'}")
        raise problem  # outside: the context would show the answer

    def _check_against(self, response: BaseModel, payload: str) -> None:
        if self.validate_response is None:
            return
        shown = self._shown(payload)
        try:
            self.validate_response(response, shown)
            return
        except ValidationError as error:
            message, errors = summary_of(error), errors_of(error)
        except (ValueError, AssertionError) as error:
            message = str(error) or "refused"
            errors = [{"type": "value_error", "loc": (), "msg": message}]
        raise ResponseInvalid(f"{self.name}: validate_response refused the answer: {message}", errors=errors)

    def _shown(self, text: str) -> BaseModel:
        try:
            return self.payload_from_text(text)
        except ValidationError as error:
            problem = PayloadInvalid(
                f"{self.name}: what was shown does not fit {self.payload_schema.__name__} any more, so no answer to it can be"
                f" checked; run the thread again to ask anew: {summary_of(error)}",
                errors=errors_of(error),
            )
        raise problem

    def response_from_text(self, text: str) -> BaseModel:
        """The response model from its stored canonical JSON.

        Raises:
            ResponseInvalid: the schema accepted it when it was answered and does not any more.
        """
        try:
            return self.response_schema.model_validate_json(text)
        except ValidationError as error:
            schema = self.response_schema.__name__
            message = f"{self.name}: the stored answer does not fit {schema} any more: {summary_of(error)}"
            problem = ResponseInvalid(message, errors=errors_of(error))
        raise problem


def _check_size(
    text: str, limit: int | None, error: type[PayloadInvalid] | type[ResponseInvalid], what: str, setting: str
) -> None:
    if limit is not None and (size := len(text.encode("utf-8"))) > limit:
        raise error(f"{what} has {size} bytes, more than FrameworkConfig.{setting} ({limit})")
