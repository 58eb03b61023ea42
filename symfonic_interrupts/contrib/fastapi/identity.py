"""Who is calling: what the application's own dependency returned for a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency

from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.identity import Identity


def identified_by(argument: str, dependency: Callable[..., Any]) -> Dependency:
    """The dependency of a route that asks the application who is calling, for `caller`.

    Args:
        argument: the name under which `interrupt_router` was given the application's dependency.
        dependency: returns an Identity. A request gets a RegistrationError (500) where it returns anything else.
    """

    async def note_caller(request: Request, found: Any = Depends(dependency)) -> None:  # noqa: B008  # FastAPI's way
        if not isinstance(found, Identity):
            raise RegistrationError(f"{argument} must return an Identity, not {type(found).__name__}")
        request.state.symfonic_interrupts_caller = found

    return Dependency(note_caller)


def caller(request: Request) -> Identity:
    """Who sent this request. A route without `identified_by` has no caller: AttributeError."""
    found: Identity = request.state.symfonic_interrupts_caller
    return found
