"""A FastAPI router with which people list, look at and answer the pauses of one graph, and programs follow what happens.

Who is calling comes from the application's own dependency, never from the request. GET and HEAD change nothing. No token is
ever taken from a URL. What one tenant sends, however much, leaves the others their share of the process.
Needs the extra: `pip install 'symfonic-interrupts[fastapi]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, get_args
from urllib.parse import urlencode

try:
    from fastapi import APIRouter, Depends, Request, Response

    from symfonic_interrupts.contrib import _http_events as sse
except ImportError as error:
    raise ImportError(
        f"symfonic_interrupts.contrib.fastapi needs its extra: pip install 'symfonic-interrupts[fastapi]' ({error})"
    ) from error

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib import _http_models as models
from symfonic_interrupts.contrib._http_json import json_data
from symfonic_interrupts.contrib._http_operating import add_operator_routes
from symfonic_interrupts.contrib._http_parameters import (
    EVENTS,
    READ_ERRORS,
    TOKEN_ERRORS,
    After,
    Cursor,
    IdempotencyKey,
    InterruptId,
    LastEventId,
    Limit,
    Name,
    OfName,
    OfThread,
    Prefer,
    Replay,
    State,
    SubScopes,
    body_docs,
    json_response,
)
from symfonic_interrupts.contrib._http_problems import (
    NO_STORE,
    AfterAnswer,
    NameMismatch,
    Problem,
    ProblemRoute,
    problem_docs,
)
from symfonic_interrupts.contrib._http_requests import (
    AnswerBody,
    Bodies,
    TokenBody,
    checked_key,
    is_of_scope,
    wanted,
)
from symfonic_interrupts.contrib._http_runs import Answer, Identity, Mode, Run, Runs
from symfonic_interrupts.contrib._http_shares import Shares
from symfonic_interrupts.core.results import PauseView
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.events import PauseEvent

__all__ = ["Identity", "Problem", "interrupt_router"]


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
    """The router for one adapter: `app.include_router(interrupt_router(adapter, identity=...), prefix="/refunds")`.

    Args:
        adapter: what `Interrupts.resume_adapter` returned.
        identity: a FastAPI dependency that returns an `Identity`, or raises an HTTPException where nobody is signed in.
        mode: how the graph is run. "auto" asks its saver; a sync saver (`SqliteSaver`, `PostgresSaver`) means threads.
        stream_mode: LangGraph's stream modes, for answers that are streamed.
        run_kwargs: (thread_id, identity) -> further keyword arguments for the graph's call.
        cross_scope_output: whoever answers from another scope is also told what the graph returned and streamed.
        operator: a FastAPI dependency like `identity`, for those who may also reissue and revoke the pauses of their scope.
            None: there are no routes for it.
        max_request_bytes: the largest body. An answer may have `FrameworkConfig.max_response_bytes` at most, too.
        runs_per_tenant: how many answers of one tenant may be under way in this process, with the runs that follow them. A
            further one is refused with 429 before anything is stored.
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
    streams = Shares("streams", streams_per_tenant)

    def known(word: str, dependency: Callable[..., Any]) -> Any:
        def check(found: Any = Depends(dependency)) -> Identity:  # noqa: B008  # how FastAPI is told of a dependency
            if not isinstance(found, Identity):
                raise RegistrationError(f"{word} must return an Identity, not {type(found).__name__}")
            return found

        return Depends(check)

    caller = known("identity", identity)

    async def list_pending(
        who: Identity = caller,
        limit: Limit = 50,
        after: After = None,
        name: OfName = None,
        thread_id: OfThread = None,
        include_sub_scopes: SubScopes = False,
        state: State = "pending",
    ) -> Response:
        """Open pauses, newest first: go on with `next` until it is null. With `state=failed` what `/failed` lists."""
        if state == "failed":
            return await list_failed(who, limit)
        found = await adapter.apending(
            scope=who.scope,
            limit=limit,
            after=after,
            name=name,
            thread_id=thread_id,
            include_sub_scopes=include_sub_scopes,
        )
        chosen = {"name": name, "thread_id": thread_id, "include_sub_scopes": include_sub_scopes}
        return _page(found, {"limit": limit, **chosen})

    async def list_failed(who: Identity = caller, limit: Limit = 50) -> Response:
        """Threads of the scope whose node raised after it had taken its answer. Only a delivery by the application goes on."""
        return json_response(models.failed_page(await adapter.afailed(limit=limit, scope=who.scope)))

    async def show_pause(interrupt_id: InterruptId, who: Identity = caller) -> Response:
        """What is asked, the JSON Schema of the answer, and how many seconds are left."""
        view = await adapter.aview(interrupt_id, scope=who.scope)
        listed = await adapter.apending(
            scope=who.scope, include_sub_scopes=True, interrupt_id=interrupt_id, thread_id=view.thread_id
        )
        token = listed[0].pause_token if listed else None
        return json_response({**json_data(view), "pause_token": token})

    async def inspect(request: Request, who: Identity = caller) -> Response:
        """What a token is about. The token stays as it is."""
        sent = await bodies.token(request)
        return json_response(await adapter.ainspect(sent.token, scope=who.scope))

    async def resume(
        request: Request,
        name: Name,
        who: Identity = caller,
        key: IdempotencyKey = None,
        prefer: Prefer = None,
    ) -> Response:
        """Answer a pause. The answer is stored first; then the graph runs with it, until it ends or waits again.

        With `Accept: text/event-stream` the run is streamed: `accepted`, the graph's chunks and events, then `done` or `error`.
        """
        sent = await bodies.answer(request)
        answer = Answer(sent.token, sent.response, who, checked_key(key))
        if sent.claim("name") != name:
            await adapter.ainspect(sent.token, scope=who.scope)  # whatever else is wrong with it comes first
            raise NameMismatch("the token is of another point than the one in the path; it is not spent")
        way = wanted(request)
        run = runs.start(answer, stream=way == "stream", awaited=way != "later")
        receipt = await asyncio.shield(run.accepted)
        if way == "later":
            return json_response(models.accepted(receipt), 202, {"Preference-Applied": "respond-async"})
        told = cross_scope_output or is_of_scope(sent.token, who.scope)
        if way == "stream":
            return sse.event_stream(streamed(run, who, told), ping=ping, headers=NO_STORE)
        delivery = await asyncio.shield(run.finished)
        output = delivery.output if told and delivery is not None else None
        shown = names.without_interrupts(output)  # `open` says them
        return json_response(models.resumed(receipt, await standing(run, who), output=shown))

    async def streamed(run: Run, who: Identity, told: bool) -> AsyncIterator[sse.Message]:
        yield sse.Message("accepted", models.accepted(run.accepted.result()))
        assert run.chunks is not None
        async with aclosing(run.chunks.read()) as chunks:
            async for chunk in chunks:
                message = sse.chunk_message(chunk, who.scope) if told else None
                if message is not None:
                    yield message
        try:
            await asyncio.shield(run.finished)
            last = sse.Message("done", models.resumed(run.accepted.result(), await standing(run, who)))
        except AfterAnswer as after:
            last = sse.error_message(after.error, **after.facts)
        yield last

    async def standing(run: Run, who: Identity) -> list[PauseEvent]:
        thread_id = run.accepted.result().thread_id
        return await adapter.apending(scope=who.scope, include_sub_scopes=True, thread_id=thread_id)

    async def follow(
        request: Request,
        who: Identity = caller,
        last_event_id: LastEventId = None,
        after: Cursor = None,
        replay: Replay = False,
        thread_id: OfThread = None,
        include_sub_scopes: SubScopes = False,
    ) -> Response:
        """What is recorded of the scope's pauses, as it comes in. No event is missed by a client that reconnects."""
        feed = sse.Feed(
            adapter=adapter,
            scope=who.scope,
            include_sub_scopes=include_sub_scopes,
            thread_id=thread_id,
            poll=poll,
            longest=longest_stream,
        )
        if request.method == "HEAD":
            await feed.start(last_event_id or after, replay=replay)
            return Response(headers=NO_STORE, media_type="text/event-stream")
        streams.take(who.scope)
        try:
            cursor, found = await feed.start(last_event_id or after, replay=replay)
        except BaseException:
            streams.give_back(who.scope)
            raise
        messages = feed.messages(cursor, found)
        return sse.event_stream(messages, ping=ping, headers=NO_STORE, at_end=lambda: streams.give_back(who.scope))

    router = APIRouter(route_class=ProblemRoute, lifespan=runs.lifespan)

    def read(path: str, endpoint: Callable[..., Any], documented: dict[int | str, dict[str, Any]]) -> None:
        router.add_api_route(path, endpoint, methods=["GET"], responses=documented, response_model=None)
        router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)

    read(
        "/pending", list_pending, {200: {"model": models.PendingPage | models.FailedPage}, **problem_docs(*READ_ERRORS)}
    )
    read("/failed", list_failed, {200: {"model": models.FailedPage}, **problem_docs(*READ_ERRORS)})
    read("/pending/{interrupt_id}", show_pause, {200: {"model": models.PauseDetail}, **problem_docs(*READ_ERRORS, 404)})
    read("/events", follow, {200: EVENTS, **problem_docs(*READ_ERRORS, 429)})
    router.add_api_route(
        "/inspect",
        inspect,
        methods=["POST"],
        response_model=None,
        responses={200: {"model": PauseView}, **problem_docs(*TOKEN_ERRORS, 409)},
        openapi_extra=body_docs(TokenBody, required=False),
    )
    router.add_api_route(
        "/resume/{name}",
        resume,
        methods=["POST"],
        response_model=None,
        responses={
            200: {"model": models.ResumeResult, **EVENTS, "description": "Answered, and the graph ran"},
            202: {"model": models.Accepted, "description": "Answered; the graph runs by itself"},
            **problem_docs(*TOKEN_ERRORS, 409, 424, 425, 429),
        },
        openapi_extra=body_docs(AnswerBody, required=True),
    )
    if operator is not None:
        add_operator_routes(router, adapter, runs, bodies, known("operator", operator))
    return router


def _page(found: list[PauseEvent], chosen: dict[str, Any]) -> Response:
    after = found[-1].interrupt_id if found else None
    return json_response(
        {"items": found, "next_after": after, "next": None if after is None else _link({**chosen, "after": after})}
    )


def _link(query: Mapping[str, Any]) -> str:
    return "?" + urlencode({key: json_data(value) for key, value in query.items() if value not in (None, False)})
