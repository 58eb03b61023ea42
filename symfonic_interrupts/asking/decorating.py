"""How a function becomes a node that asks first.

The function is `(state, decision, ...)`; the node that LangGraph gets is `(state, ...)`. What cannot work is refused when the
decorator is applied, not when a person has answered: the answer would be spent on a function that cannot take it.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from pydantic import BaseModel

from symfonic_interrupts.errors import RegistrationError

T_co = TypeVar("T_co", covariant=True)

POINT_ATTRIBUTE = "__interrupt_point__"
"""Set on a decorated node: its point's name."""

INJECTED = ("config", "runtime", "store", "writer", "previous", "error")
"""What LangGraph gives a node beside its state, by the parameter's name."""

Parameter = inspect.Parameter


class Node(Protocol[T_co]):
    """A LangGraph node."""

    def __call__(self, state: Any) -> T_co: ...


@dataclass(frozen=True, slots=True)
class Decorator:
    """Makes a function the node of a point.

    Attributes:
        name: the point's.
        response_schema: the model of its answers.
        pause: the point's `pause`.
        payload: takes the state, returns what is shown.
        when: takes the state, returns whether to ask; None: always.
    """

    name: str
    response_schema: type[BaseModel]
    pause: Callable[[Any], Any]
    payload: Callable[[Any], Any]
    when: Callable[[Any], Any] | None

    def __post_init__(self) -> None:
        check_callables(self.name, self.payload, self.when)

    def __call__(self, function: Callable[..., T_co]) -> Node[T_co]:
        """The node.

        Raises:
            RegistrationError: the function cannot be one; the message says why.
        """
        try:
            signature = self._signature(function)
        except _Unfit as error:
            raise RegistrationError(f"{self.name}: {error}") from None
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def node(state: Any, **injected: Any) -> Any:
                decision = None
                if self._asks(state):
                    shown = self.payload(state)
                    decision = self.pause(await shown if inspect.isawaitable(shown) else shown)
                return await function(state, decision, **injected)
        else:

            @functools.wraps(function)
            def node(state: Any, **injected: Any) -> Any:
                decision = self.pause(self.payload(state)) if self._asks(state) else None
                return function(state, decision, **injected)

        node.__signature__ = signature  # type: ignore[attr-defined]
        setattr(node, POINT_ATTRIBUTE, self.name)
        return cast(Node[T_co], node)

    def _asks(self, state: Any) -> bool:
        if self.when is None:
            return True
        answer = self.when(state)
        if inspect.isawaitable(answer):  # a sync function that calls an async one; an awaitable is always true
            if inspect.iscoroutine(answer):
                answer.close()
            raise RegistrationError(f"{self.name}: when= returned an awaitable; it must return a bool")
        return bool(answer)

    def _signature(self, function: Callable[..., Any]) -> inspect.Signature:
        _check_kind(function)
        if is_async(self.payload) and not inspect.iscoroutinefunction(function):
            raise _Unfit("an async payload= needs an async node function")
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        _check_parameters(parameters)
        for parameter in parameters[:2]:
            annotation = _resolved(function, parameter.annotation)
            if parameter is parameters[1]:
                _check_decision(annotation, self.response_schema, asks_always=self.when is None)
            elif annotation is self.response_schema:
                raise _Unfit("the first parameter is the state and the second the decision: (state, decision, ...)")
        return signature.replace(parameters=[parameters[0], *parameters[2:]])


class _Unfit(Exception):
    """Why a function cannot be a node."""


def check_callables(name: str, payload: object, when: object) -> None:
    """Raise RegistrationError unless both are functions of one argument, and `when` is not async."""
    for what, given in (("payload=", payload), ("when=", when)):
        if given is None and what == "when=":
            continue
        if not callable(given):
            raise RegistrationError(f"{name}: {what} must be a function of the state, not {type(given).__name__}")
        if not _takes_one(given):
            raise RegistrationError(f"{name}: {what} must be a function of one argument, the state")
    if is_async(when):
        raise RegistrationError(
            f"{name}: when= must not be async: whether to ask is decided from the state alone; write a sync function"
        )


def is_async(given: object) -> bool:
    """Whether it can be seen that a call gives a coroutine: it is an async function, or an object with an async `__call__`."""
    return any(inspect.iscoroutinefunction(part) for part in _run_by(given))


def _run_by(given: Any) -> tuple[Any, ...]:
    """The functions that a call of it may run: itself, and its class's `__call__`. Of a partial, those of its function."""
    while isinstance(given, functools.partial):
        given = given.func
    return (given, type(given).__call__) if callable(given) else (given,)


def _check_kind(function: object) -> None:
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise _Unfit(f"a {kind} cannot be decorated; put @staticmethod above this decorator, or use a plain function")
    if isinstance(function, type) or not callable(function):
        raise _Unfit(f"a node is a function of (state, decision, ...), not {type(function).__name__}")
    if is_async(function) and not inspect.iscoroutinefunction(function):
        raise _Unfit("an object with an async __call__ would never be awaited; use an async function")
    if any(inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part) for part in _run_by(function)):
        raise _Unfit("a node returns its update; a generator would never run")


def _check_parameters(parameters: list[Parameter]) -> None:
    named = [parameter.name for parameter in parameters]
    if named[:1] in (["self"], ["cls"]):
        raise _Unfit("a method cannot be decorated: nobody gives it its self; decorate a function, or obj.method")
    if len(parameters) < 2 or any(
        parameter.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters[:2]
    ):
        raise _Unfit("a node of a point is a function of (state, decision, ...)")
    if "decision" in (named[0], *named[2:]) or "state" in named[1:] or {*named[:2]} & {*INJECTED}:
        raise _Unfit(
            f"the first parameter is the state and the second the decision: (state, decision, ...), not ({', '.join(named)})"
        )
    for parameter in parameters[2:]:
        if (
            parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            or parameter.default is not Parameter.empty
        ):
            continue
        if parameter.name not in INJECTED or parameter.kind is Parameter.POSITIONAL_ONLY:
            raise _Unfit(
                f"nobody gives a node the parameter {parameter.name}; beside state and decision LangGraph gives"
                f" {', '.join(INJECTED)}, by name"
            )


def _check_decision(annotation: Any, response: type[BaseModel], *, asks_always: bool) -> None:
    choices = _choices(annotation)
    wanted = response.__name__ if asks_always else f"{response.__name__} | None"
    if not any(_accepts(choice, response) for choice in choices):
        twin = " of the same name (the model was defined again; register the point again)"
        raise _Unfit(
            f"decision must be annotated {wanted}, the response_schema; it is another type"
            + (
                twin
                if response.__name__ in [getattr(c, "__name__", None) for c in choices]
                else f", {_shown(annotation)}"
            )
        )
    if not asks_always and not any(_is_open(choice) or choice in (None, type(None)) for choice in choices):
        raise _Unfit(f"decision must be annotated {wanted}: it is None where when= says not to ask")


def _choices(annotation: Any) -> list[Any]:
    """The types that an annotation allows: the members of a union, or the annotation itself."""
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...`
        annotation = annotation.__value__
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _choices(typing.get_args(annotation)[0])
    if origin is typing.Union or origin is types.UnionType:
        return [choice for member in typing.get_args(annotation) for choice in _choices(member)]
    return [annotation]


def _is_open(choice: Any) -> bool:
    """Whether nothing can be checked by it: no annotation, one that cannot be resolved, Any, object, a type variable."""
    return choice in (Parameter.empty, Any, object) or isinstance(choice, str | typing.ForwardRef | TypeVar)


def _accepts(choice: Any, response: type[BaseModel]) -> bool:
    kind = choice if isinstance(choice, type) else typing.get_origin(choice)
    if _is_open(choice) or getattr(kind, "_is_protocol", False):
        return True
    if not isinstance(kind, type):
        return kind is None and choice is not None  # a typing form that is not known here: not refused
    try:
        return issubclass(response, kind)
    except TypeError:  # a TypedDict
        return False


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """The annotation, resolved in the module of the function; unchanged where that cannot be done."""
    modules = [getattr(inspect.unwrap(part), "__globals__", None) for part in _run_by(function)]
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=next(filter(None, modules), {}), include_extras=True)["it"]
    except Exception:  # resolving may raise anything; what cannot be resolved is not refused
        return annotation


def _takes_one(given: Callable[..., Any]) -> bool:
    try:
        inspect.signature(given).bind(None)
    except TypeError:
        return False
    except ValueError:  # some built-ins have no signature
        return True
    return True
