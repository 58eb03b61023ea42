"""What a point is: its name, its two schemas, and the rules for answering it. Data and checks, no I/O.

JSON is the only form in which a payload or a response is kept, hashed and handed on. The functions here are the one
way between a model and its canonical JSON text, so what is validated when a person answers is what the node gets.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    UnknownInterrupt,
)
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

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z")
_NODE_PATTERN = re.compile(r"(?:[^/:|]+/)?[^/:|]+(?::[^/:|]+)*\Z")

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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME_PATTERN.match(self.name):
            raise RegistrationError(
                "name must look like an identifier (letters, digits, _ . -) of at most 64 characters"
            )
        for schema in ("payload_schema", "response_schema"):
            value = getattr(self, schema)
            if not (isinstance(value, type) and issubclass(value, BaseModel)) or value is BaseModel:
                raise RegistrationError(f"{self.name}: {schema} must be a subclass of pydantic.BaseModel")
        if self.validate_response is not None and (
            not callable(self.validate_response)
            or _is_async(self.validate_response)
            or not _takes_two(self.validate_response)
        ):
            raise RegistrationError(
                f"{self.name}: validate_response must be callable as (response, payload) and not async, or None"
            )
        if self.ttl is not None and (not isinstance(self.ttl, timedelta) or self.ttl <= timedelta(0)):
            raise RegistrationError(f"{self.name}: ttl must be a timedelta above zero, or None")
        if not isinstance(self.nodes, list | tuple) or not all(
            isinstance(n, str) and _NODE_PATTERN.match(n) for n in self.nodes
        ):
            raise RegistrationError(f'{self.name}: nodes must be a tuple of "node", "sub:node" or "graph/node"')
        try:
            if not isinstance(self.metadata, Mapping):
                raise ValueError
            canonical_json(dict(self.metadata))
        except ValueError:
            raise RegistrationError(f"{self.name}: metadata must be a mapping of JSON data") from None
        if self.on_expire is not None:
            try:
                self.response_text(self.on_expire)
            except ResponseInvalid as error:
                raise RegistrationError(f"{self.name}: on_expire does not fit response_schema: {error}") from None
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))
        object.__setattr__(self, "nodes", tuple(self.nodes))

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

    def response_text(self, response: Any, *, payload_text: str | None = None, limit: int | None = None) -> str:
        """Validate an answer, and return its canonical JSON.

        Args:
            response: an instance of `response_schema`, or plain JSON data; the latter is kept as it was sent.
            payload_text: the payload's canonical JSON; with it `validate_response` is called too.
            limit: most bytes of UTF-8 it may have.

        Raises:
            ResponseInvalid: with pydantic's errors, without the input.
        """
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
            if payload_text is not None:
                self._check_against(model, payload_text)
        except ValidationError as error:
            message = f"{self.name}: the answer does not fit {self.response_schema.__name__}: {summary_of(error)}"
            problem = ResponseInvalid(message, errors=errors_of(error))
        except ValueError as error:
            problem = ResponseInvalid(f"{self.name}: response: {error}")
        if problem is not None:
            raise problem  # outside: the context would show the answer
        return text

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


class Registry(Mapping[str, InterruptRegistration]):
    """The points of one `Interrupts`, by name."""

    def __init__(self, config: FrameworkConfig, *, replace: bool = False) -> None:
        self._config = config
        self._replace = replace
        self._by_name: dict[str, InterruptRegistration] = {}

    def add(self, registration: InterruptRegistration) -> InterruptRegistration:
        """Add a point.

        Raises:
            FeatureDisabled: the flag for custom points is off.
            RegistrationError: the name is taken, or a node is covered by another point.
        """
        registration.check(self._config)
        known = self._by_name.get(registration.name)
        if known is not None and (known.built_in or not self._replace):
            if known.built_in:
                raise RegistrationError(f"{registration.name} is built in; choose another name")
            raise RegistrationError(
                f"{registration.name} is registered already on this Interrupts; register a point once and share what"
                " register_interrupt returned, or choose another name"
            )
        for other in self._by_name.values():
            if other.name == registration.name or _of_two_objects(other, registration):
                continue
            if twice := set(other.nodes) & set(registration.nodes):
                raise RegistrationError(
                    f"{registration.name}: node {min(twice)!r} is covered by {other.name} already; where two graphs have a"
                    ' node of that name, write "graph/node"'
                )
        self._by_name[registration.name] = registration
        return registration

    @property
    def covers_nodes(self) -> bool:
        """Whether any point covers native nodes."""
        return any(registration.nodes for registration in self._by_name.values())

    def named(self, name: str) -> InterruptRegistration:
        """The point of that name. Raises UnknownInterrupt."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownInterrupt(f"no point named {name!r} is registered here") from None

    def __getitem__(self, name: str) -> InterruptRegistration:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _of_two_objects(one: InterruptRegistration, other: InterruptRegistration) -> bool:
    return one.nodes_of is not None and other.nodes_of is not None and one.nodes_of is not other.nodes_of


def _is_async(function: Any) -> bool:
    return any(inspect.iscoroutinefunction(part) for part in (function, type(function).__call__))


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # some built-ins have no signature
        return True
    return True


def _check_size(
    text: str, limit: int | None, error: type[PayloadInvalid] | type[ResponseInvalid], what: str, setting: str
) -> None:
    if limit is not None and (size := len(text.encode("utf-8"))) > limit:
        raise error(f"{what} has {size} bytes, more than FrameworkConfig.{setting} ({limit})")
