"""What the routes do: one method for each, which is given the checked parameters and returns the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.params import Depends

from symfonic_interrupts import langgraph_internals as names
from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib.fastapi import models, sse
from symfonic_interrupts.contrib.fastapi.feed import Feed
from symfonic_interrupts.contrib.fastapi.identity import caller
from symfonic_interrupts.contrib.fastapi.json_output import json_data
from symfonic_interrupts.contrib.fastapi.openapi import EVENTS, READ_ERRORS, TOKEN_ERRORS, body_docs, problem_docs
from symfonic_interrupts.contrib.fastapi.parameters import (
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
)
from symfonic_interrupts.contrib.fastapi.problems import AfterAnswer, NameMismatch
from symfonic_interrupts.contrib.fastapi.requests import Bodies, checked_key, is_of_scope, wanted
from symfonic_interrupts.contrib.fastapi.responses import NO_STORE, json_response
from symfonic_interrupts.contrib.fastapi.runs import Answer, Run, Runs
from symfonic_interrupts.contrib.fastapi.shares import Shares
from symfonic_interrupts.core.results import PauseView
from symfonic_interrupts.events import PauseEvent
from symfonic_interrupts.identity import Identity


class Routes:
    """The routes for whoever may answer pauses. The arguments are those of `interrupt_router`, or made from them.

    The docstrings of the routes stand in the application's OpenAPI document.
    """

    def __init__(
        self,
        adapter: ResumeAdapter,
        runs: Runs,
        bodies: Bodies,
        streams: Shares,
        *,
        cross_scope_output: bool,
        poll: timedelta,
        ping: timedelta,
        longest_stream: timedelta,
    ) -> None:
        self._adapter = adapter
        self._runs = runs
        self._bodies = bodies
        self._streams = streams
        self._cross_scope_output = cross_scope_output
        self._poll = poll
        self._ping = ping
        self._longest_stream = longest_stream

    def add_to(self, router: APIRouter, identified: Depends) -> None:
        """Register the routes.

        Args:
            identified: from `identified_by`: who is calling.
        """

        def read(path: str, endpoint: Any, success: dict[str, Any], *errors: int) -> None:
            documented = {200: success, **problem_docs(*READ_ERRORS, *errors)}
            common: dict[str, Any] = {"response_model": None, "dependencies": [identified]}
            router.add_api_route(path, endpoint, methods=["GET"], responses=documented, **common)
            router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False, **common)

        read("/pending", self.list_pending, {"model": models.PendingPage | models.FailedPage})
        read("/failed", self.list_failed, {"model": models.FailedPage})
        read("/pending/{interrupt_id}", self.show_pause, {"model": models.PauseDetail}, 404)
        read("/events", self.follow, EVENTS, 429)
        router.add_api_route(
            "/inspect",
            self.inspect,
            methods=["POST"],
            response_model=None,
            dependencies=[identified],
            responses={200: {"model": PauseView}, **problem_docs(*TOKEN_ERRORS, 409)},
            openapi_extra=body_docs(models.TokenBody, required=False),
        )
        router.add_api_route(
            "/resume/{name}",
            self.resume,
            methods=["POST"],
            response_model=None,
            dependencies=[identified],
            responses={
                200: {"model": models.ResumeResult, **EVENTS, "description": "Answered, and the graph ran"},
                202: {"model": models.Accepted, "description": "Answered; the graph runs by itself"},
                **problem_docs(*TOKEN_ERRORS, 409, 424, 425, 429),
            },
            openapi_extra=body_docs(models.AnswerBody, required=True),
        )

    async def list_pending(
        self,
        request: Request,
        limit: Limit = 50,
        after: After = None,
        name: OfName = None,
        thread_id: OfThread = None,
        include_sub_scopes: SubScopes = False,
        state: State = "pending",
    ) -> Response:
        """Open pauses, newest first: go on with `next` until it is null. With `state=failed` what `/failed` lists."""
        if state == "failed":
            return await self.list_failed(request, limit)
        chosen = {"name": name, "thread_id": thread_id, "include_sub_scopes": include_sub_scopes}
        found = await self._adapter.apending(
            scope=caller(request).scope,
            limit=limit,
            after=after,
            name=name,
            thread_id=thread_id,
            include_sub_scopes=include_sub_scopes,
        )
        next_after = found[-1].interrupt_id if found else None
        link = None if next_after is None else _link({"limit": limit, **chosen, "after": next_after})
        return json_response({"items": found, "next_after": next_after, "next": link})

    async def list_failed(self, request: Request, limit: Limit = 50) -> Response:
        """Threads of the scope whose node raised after it had taken its answer. Only a delivery by the application goes on."""
        return json_response(models.failed_page(await self._adapter.afailed(limit=limit, scope=caller(request).scope)))

    async def show_pause(self, request: Request, interrupt_id: InterruptId) -> Response:
        """What is asked, the JSON Schema of the answer, and how many seconds are left."""
        scope = caller(request).scope
        view = await self._adapter.aview(interrupt_id, scope=scope)
        listed = await self._adapter.apending(
            scope=scope, include_sub_scopes=True, interrupt_id=interrupt_id, thread_id=view.thread_id
        )
        token = listed[0].pause_token if listed else None
        return json_response({**json_data(view), "pause_token": token})

    async def inspect(self, request: Request) -> Response:
        """What a token is about. The token stays as it is."""
        sent = await self._bodies.token(request)
        return json_response(await self._adapter.ainspect(sent.token, scope=caller(request).scope))

    async def resume(self, request: Request, name: Name, key: IdempotencyKey = None, prefer: Prefer = None) -> Response:
        """Answer a pause. The answer is stored first; then the graph runs with it, until it ends or waits again.

        With `Accept: text/event-stream` the run is streamed: `accepted`, the graph's chunks and events, then `done` or `error`.
        """
        who = caller(request)
        sent = await self._bodies.answer(request)
        answer = Answer(sent.token, sent.response, who, checked_key(key))
        if sent.claim("name") != name:
            await self._adapter.ainspect(sent.token, scope=who.scope)  # raises if the token is also wrong otherwise
            raise NameMismatch("the token is of another point than the one in the path; it is not spent")
        way = wanted(request)
        run = self._runs.start(answer, stream=way == "stream", awaited=way != "later")
        receipt = await asyncio.shield(run.accepted)
        if way == "later":
            return json_response(models.accepted(receipt), 202, {"Preference-Applied": "respond-async"})
        with_output = self._cross_scope_output or is_of_scope(sent.token, who.scope)
        if way == "stream":
            return sse.event_stream(self._streamed(run, who, with_output), ping=self._ping, headers=NO_STORE)
        delivery = await asyncio.shield(run.finished)
        output = delivery.output if with_output and delivery is not None else None
        shown = names.without_interrupts(output)  # its open pauses stand in `open`, as far as the caller may see them
        return json_response(models.resumed(receipt, await self._open_pauses(run, who), output=shown))

    async def follow(
        self,
        request: Request,
        last_event_id: LastEventId = None,
        after: Cursor = None,
        replay: Replay = False,
        thread_id: OfThread = None,
        include_sub_scopes: SubScopes = False,
    ) -> Response:
        """What is recorded of the scope's pauses, as it comes in. No event is missed by a client that reconnects."""
        scope = caller(request).scope
        feed = Feed(
            adapter=self._adapter,
            scope=scope,
            include_sub_scopes=include_sub_scopes,
            thread_id=thread_id,
            poll=self._poll,
            longest=self._longest_stream,
        )
        if request.method == "HEAD":
            await feed.start(last_event_id or after, replay=replay)
            return Response(headers=NO_STORE, media_type="text/event-stream")
        self._streams.take(scope)
        try:
            cursor, found = await feed.start(last_event_id or after, replay=replay)
        except BaseException:
            self._streams.give_back(scope)
            raise
        messages = feed.messages(cursor, found)
        return sse.event_stream(
            messages, ping=self._ping, headers=NO_STORE, at_end=lambda: self._streams.give_back(scope)
        )

    async def _streamed(self, run: Run, who: Identity, with_output: bool) -> AsyncIterator[sse.Message]:
        yield sse.Message("accepted", models.accepted(run.accepted.result()))
        assert run.chunks is not None
        async with aclosing(run.chunks.read()) as chunks:
            async for chunk in chunks:
                message = sse.chunk_message(chunk, who.scope) if with_output else None
                if message is not None:
                    yield message
        try:
            await asyncio.shield(run.finished)
            last = sse.Message("done", models.resumed(run.accepted.result(), await self._open_pauses(run, who)))
        except AfterAnswer as after:
            last = sse.error_message(after.error, **after.facts)
        yield last

    async def _open_pauses(self, run: Run, who: Identity) -> list[PauseEvent]:
        thread_id = run.accepted.result().thread_id
        return await self._adapter.apending(scope=who.scope, include_sub_scopes=True, thread_id=thread_id)


def _link(query: Mapping[str, Any]) -> str:
    return "?" + urlencode({key: json_data(value) for key, value in query.items() if value not in (None, False)})
