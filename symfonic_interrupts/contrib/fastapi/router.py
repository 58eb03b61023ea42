"""The router: its options, and how it is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

from fastapi import APIRouter

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib.fastapi.identity import identified_by
from symfonic_interrupts.contrib.fastapi.operating import OperatorRoutes
from symfonic_interrupts.contrib.fastapi.problem_route import ProblemRoute
from symfonic_interrupts.contrib.fastapi.requests import Bodies
from symfonic_interrupts.contrib.fastapi.routes import Routes
from symfonic_interrupts.contrib.fastapi.runs import Mode, Runs
from symfonic_interrupts.contrib.fastapi.shares import Shares
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.identity import Identity


def interrupt_router(
    adapter: ResumeAdapter,
    *,
    identity: Callable[..., Any],
    mode: Mode = "auto",
    stream_mode: Sequence[str] = ("updates", "custom"),
    run_kwargs: Callable[[str, Identity], Mapping[str, Any]] | None = None,
    cross_scope_output: bool = False,
    operator: Callable[..., Any] | None = None,
    max_request_bytes: int = 256 * 1024,
    runs_per_tenant: int = 32,
    streams_per_tenant: int = 20,
    poll: timedelta = timedelta(seconds=1),
    ping: timedelta = timedelta(seconds=15),
    longest_stream: timedelta = timedelta(minutes=15),
    threads: int = 64,
    shutdown_wait: timedelta = timedelta(seconds=30),
) -> APIRouter:
    """The router for one adapter, as in `app.include_router(interrupt_router(adapter, identity=...), prefix="/refunds")`.

    Args:
        adapter: what `Interrupts.resume_adapter` returned.
        identity: a FastAPI dependency that returns an `Identity`, or raises an HTTPException where nobody is signed in.
        mode: how the graph is run. "auto" asks its saver; a sync saver (`SqliteSaver`, `PostgresSaver`) means threads.
        stream_mode: LangGraph's stream modes, for answers that are streamed.
        run_kwargs: (thread_id, identity) -> further keyword arguments for the graph's call.
        cross_scope_output: also who answers from another scope than the pause's gets what the graph returns and streams.
        operator: a FastAPI dependency like `identity`, for those who may also reissue and revoke the pauses of their scope.
            None: no routes for that.
        max_request_bytes: the largest body. An answer may have `FrameworkConfig.max_response_bytes` at most, too.
        runs_per_tenant: how many answers of one tenant, with their runs, may be under way in this process. One more is refused
            with 429, and nothing is stored.
        streams_per_tenant: how many streams of recorded events one tenant may have open in this process.
        poll: how often a stream of recorded events looks for new ones.
        ping: how often a silent stream sends a comment.
        longest_stream: a stream of recorded events ends after this time; the client connects again and is identified again.
        threads: how many runs at once in mode "sync". More than `runs_per_tenant`, so that no tenant has all of them.
        shutdown_wait: how long the application, when it ends, waits for runs that go on.

    Raises:
        RegistrationError: no adapter, an identity or operator that is no dependency, or a limit below 1.
    """
    if not isinstance(adapter, ResumeAdapter):
        raise RegistrationError("adapter must be what Interrupts.resume_adapter() returns")
    for word, dependency in (("identity", identity), ("operator", operator or identity)):
        if not callable(dependency):
            raise RegistrationError(f"{word} must be a FastAPI dependency: a callable that returns an Identity")
    limits = {
        "max_request_bytes": max_request_bytes,
        "runs_per_tenant": runs_per_tenant,
        "streams_per_tenant": streams_per_tenant,
        "threads": threads,
    }
    for word, number in limits.items():
        if type(number) is not int or number < 1:
            raise RegistrationError(f"{word} must be a whole number, at least 1")
    if mode not in get_args(Mode):
        raise RegistrationError(f"mode must be one of {', '.join(get_args(Mode))}")
    runs = Runs(
        adapter,
        mode=mode,
        stream_mode=stream_mode,
        run_kwargs=run_kwargs,
        threads=threads,
        shares=Shares("answers", runs_per_tenant),
        shutdown_wait=shutdown_wait,
    )
    bodies = Bodies(max_request_bytes, adapter.verify)
    routes = Routes(
        adapter,
        runs,
        bodies,
        Shares("streams", streams_per_tenant),
        cross_scope_output=cross_scope_output,
        poll=poll,
        ping=ping,
        longest_stream=longest_stream,
    )
    router = APIRouter(route_class=ProblemRoute, lifespan=runs.lifespan)
    routes.add_to(router, identified_by("identity", identity))
    if operator is not None:
        OperatorRoutes(adapter, runs, bodies).add_to(router, identified_by("operator", operator))
    return router
