"""A FastAPI router with which people list, look at and answer the pauses of one graph, and programs follow what happens.

Who is calling comes from the application's own dependency, never from the request. GET and HEAD change nothing. No token is
ever taken from a URL. Needs the extra: `pip install 'symfonic-interrupts[fastapi]'`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

try:
    from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
    from fastapi.responses import JSONResponse

    from symfonic_interrupts.contrib import _http_events as sse
except ImportError as error:
    raise ImportError(
        f"symfonic_interrupts.contrib.fastapi needs its extra: pip install 'symfonic-interrupts[fastapi]' ({error})"
    ) from error

from symfonic_interrupts.contrib import _http_models as models
from symfonic_interrupts.contrib._http_json import json_data
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
    TokenBody,
    checked_key,
    is_of_scope,
    read_answer,
    read_token,
    wanted,
)
from symfonic_interrupts.contrib._http_runs import Answer, Identity, Mode, Run, Runs
from symfonic_interrupts.engine.resume import ResumeAdapter
from symfonic_interrupts.engine.views import PauseView
from symfonic_interrupts.errors import RegistrationError
from symfonic_interrupts.events import PauseEvent

__all__ = ["Identity", "Problem", "interrupt_router"]

BODY_MARGIN = 64 * 1024
"""Bytes that a body may have beyond `FrameworkConfig.max_response_bytes`: for the token and the JSON around the answer."""

NAME = r"^[A-Za-z_][A-Za-z0-9_.\-]{0,63}$"
INTERRUPT_ID = r"^i-[0-9a-f]{12}$"
TEXT = r"^[^\x00]+$"

Name = Annotated[str, Path(pattern=NAME, description="the point's name; the token must be one of its pauses")]
InterruptId = Annotated[str, Path(pattern=INTERRUPT_ID)]
Limit = Annotated[int, Query(ge=1, le=1000, description="pauses on a page")]
After = Annotated[str | None, Query(pattern=INTERRUPT_ID, description="`next_after` of the page before")]
OfName = Annotated[str | None, Query(pattern=NAME, description="only pauses of this point")]
OfThread = Annotated[str | None, Query(pattern=TEXT, max_length=1024, description="only of this thread")]
SubScopes = Annotated[
    bool, Query(description="also of scopes below the caller's, of points that may be answered from there")
]
Cursor = Annotated[str | None, Query(max_length=100, description="go on after this event; `Last-Event-ID` comes first")]
Replay = Annotated[bool, Query(description="begin with the oldest recorded event instead of the next one")]
LastEventId = Annotated[str | None, Header(max_length=100, description="the id of the last event that was seen")]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="the same key and answer again: the same receipt again")
]
Prefer = Annotated[str | None, Header(description="`respond-async`: 202 as soon as the answer is stored (RFC 7240)")]

_READ = (400, 401, 403, 422, 500, 503)
_TOKEN = (*_READ, 404, 410, 413, 415)
_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "properties": {"event": _TEXT, "data": {**_TEXT, "contentMediaType": "application/json"}, "id": _TEXT},
}
_EVENTS = {"description": "Server-sent events", "content": {"text/event-stream": {"itemSchema": _EVENT}}}


def interrupt_router(
    adapter: ResumeAdapter,
    *,
    identity: Callable[..., Any],
    mode: Mode = "auto",
    stream_mode: Sequence[str] = ("updates", "custom"),
    run_kwargs: Callable[[str, Identity], Mapping[str, Any]] | None = None,
    cross_scope_output: bool = False,
    max_body_bytes: int | None = None,
    poll: timedelta = timedelta(seconds=1),
    ping: timedelta = timedelta(seconds=15),
    longest_stream: timedelta = timedelta(minutes=15),
    threads: int = 40,
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
        max_body_bytes: the largest body; None: `FrameworkConfig.max_response_bytes` and 64 KiB more.
        poll: how often a stream of recorded events looks for new ones.
        ping: how often a silent stream sends a comment.
        longest_stream: a stream of recorded events ends after this time; the client connects again and is identified again.
        threads: how many runs at once in mode "sync".
        shutdown_wait: how long the application, when it ends, waits for runs that go on.

    Raises:
        RegistrationError: no adapter, or an identity that is no dependency.
    """
    if not isinstance(adapter, ResumeAdapter):
        raise RegistrationError("adapter must be what Interrupts.resume_adapter() returns")
    if not callable(identity):
        raise RegistrationError("identity must be a FastAPI dependency: a callable that returns an Identity")
    if mode not in get_args(Mode):
        raise RegistrationError(f"mode must be one of {', '.join(get_args(Mode))}")
    runs = Runs(
        adapter,
        mode=mode,
        stream_mode=stream_mode,
        run_kwargs=run_kwargs,
        threads=threads,
        shutdown_wait=shutdown_wait,
    )
    limit = max_body_bytes or adapter.graph.checkpointer.engine.config.max_response_bytes + BODY_MARGIN

    def known(found: Any = Depends(identity)) -> Identity:  # noqa: B008  # how FastAPI is told of a dependency
        if not isinstance(found, Identity):
            raise RegistrationError(f"identity must return an Identity, not {type(found).__name__}")
        return found

    caller = Depends(known)

    async def list_pending(
        who: Identity = caller,
        limit: Limit = 50,
        after: After = None,
        name: OfName = None,
        thread_id: OfThread = None,
        include_sub_scopes: SubScopes = False,
    ) -> Response:
        """Open pauses, newest first: go on with `next` until it is null."""
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

    async def show_pause(interrupt_id: InterruptId, who: Identity = caller) -> Response:
        """What is asked, the JSON Schema of the answer, and how many seconds are left."""
        view = await adapter.aview(interrupt_id, scope=who.scope)
        listed = await adapter.apending(
            scope=who.scope, include_sub_scopes=True, interrupt_id=interrupt_id, thread_id=view.thread_id
        )
        token = listed[0].pause_token if listed else None
        return _json({**json_data(view), "pause_token": token})

    async def inspect(request: Request, who: Identity = caller) -> Response:
        """What a token is about. The token stays as it is."""
        sent = await read_token(request, limit)
        return _json(await adapter.ainspect(sent.token, scope=who.scope))

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
        sent = await read_answer(request, limit)
        answer = Answer(sent.token, sent.response, who, checked_key(key))
        if sent.claim("name") != name:
            await adapter.ainspect(sent.token, scope=who.scope)  # whatever else is wrong with it comes first
            raise NameMismatch("the token is of another point than the one in the path; it is not spent")
        way = wanted(request)
        run = runs.start(answer, stream=way == "stream")
        receipt = await asyncio.shield(run.accepted)
        if way == "later":
            return _json(models.accepted(receipt), 202, {"Preference-Applied": "respond-async"})
        told = cross_scope_output or is_of_scope(sent.token, who.scope)
        if way == "stream":
            return sse.event_stream(streamed(run, who, told), ping=ping, headers=NO_STORE)
        delivery = await asyncio.shield(run.finished)
        output = delivery.output if told and delivery is not None else None
        if isinstance(output, dict):  # `open` says it
            output = {part: value for part, value in output.items() if part != "__interrupt__"}
        return _json(models.resumed(receipt, await standing(run, who), output=output))

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
        cursor, found = await feed.start(last_event_id or after, replay=replay)
        if request.method == "HEAD":
            return Response(headers=NO_STORE, media_type="text/event-stream")
        return sse.event_stream(feed.messages(cursor, found), ping=ping, headers=NO_STORE)

    router = APIRouter(route_class=ProblemRoute, lifespan=runs.lifespan)

    def read(path: str, endpoint: Callable[..., Any], documented: dict[int | str, dict[str, Any]]) -> None:
        router.add_api_route(path, endpoint, methods=["GET"], responses=documented, response_model=None)
        router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)

    read("/pending", list_pending, {200: {"model": models.PendingPage}, **problem_docs(*_READ)})
    read("/pending/{interrupt_id}", show_pause, {200: {"model": models.PauseDetail}, **problem_docs(*_READ, 404)})
    read("/events", follow, {200: _EVENTS, **problem_docs(*_READ)})
    router.add_api_route(
        "/inspect",
        inspect,
        methods=["POST"],
        response_model=None,
        responses={200: {"model": PauseView}, **problem_docs(*_TOKEN, 409)},
        openapi_extra=_body(TokenBody, required=False),
    )
    router.add_api_route(
        "/resume/{name}",
        resume,
        methods=["POST"],
        response_model=None,
        responses={
            200: {"model": models.ResumeResult, **_EVENTS, "description": "Answered, and the graph ran"},
            202: {"model": models.Accepted, "description": "Answered; the graph runs by itself"},
            **problem_docs(*_TOKEN, 409, 424, 425, 429),
        },
        openapi_extra=_body(AnswerBody, required=True),
    )
    return router


def _page(found: list[PauseEvent], chosen: dict[str, Any]) -> Response:
    after = found[-1].interrupt_id if found else None
    return _json(
        {"items": found, "next_after": after, "next": None if after is None else _link({**chosen, "after": after})}
    )


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(json_data(content), status_code=status, headers={**NO_STORE, **(headers or {})})


def _link(query: Mapping[str, Any]) -> str:
    return "?" + urlencode({key: json_data(value) for key, value in query.items() if value not in (None, False)})


def _body(model: type[TokenBody], *, required: bool) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
