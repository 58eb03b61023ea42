"""The routes for operators: a new token for a pause, or no token at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request, Response

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib import _http_models as models
from symfonic_interrupts.contrib._http_parameters import READ_ERRORS, InterruptId, body_docs, json_response
from symfonic_interrupts.contrib._http_problems import NO_STORE, RequestInvalid, problem_docs
from symfonic_interrupts.contrib._http_requests import Bodies
from symfonic_interrupts.contrib._http_runs import Identity, Runs


def add_operator_routes(router: APIRouter, adapter: ResumeAdapter, runs: Runs, bodies: Bodies, operator: Any) -> None:
    """What an operator may do to a pause of the own scope. Another's looks like one that there is not."""
    longest = adapter.graph.checkpointer.hub.config.max_ttl

    async def reissue(request: Request, interrupt_id: InterruptId, who: Identity = operator) -> Response:
        """A new token for a pending or expired pause. The old one is dead; the question stays the same."""
        sent = await bodies.small(request, models.Reissue)
        ttl = None if sent.ttl_seconds is None else timedelta(seconds=sent.ttl_seconds)
        if ttl is not None and ttl > longest:
            message = f"must be at most {longest.total_seconds():.0f} (FrameworkConfig.max_ttl)"
            error = {"type": "less_than_equal", "loc": ["body", "ttl_seconds"], "msg": message}
            raise RequestInvalid(f"ttl_seconds {message}", errors=[error])
        await adapter.aview(interrupt_id, scope=who.scope)
        return json_response(await runs.reissue(interrupt_id, ttl, who))

    async def revoke(request: Request, interrupt_id: InterruptId, who: Identity = operator) -> Response:
        """Kill the token of a pending pause. The thread stays where it is."""
        sent = await bodies.small(request, models.Revoke)
        await adapter.aview(interrupt_id, scope=who.scope)
        await adapter.arevoke(interrupt_id, reason=sent.reason, scope=who.scope)
        return Response(status_code=204, headers=NO_STORE)

    refused = problem_docs(*READ_ERRORS, 404, 409, 413, 415, 425)
    router.add_api_route(
        "/pending/{interrupt_id}/reissue",
        reissue,
        methods=["POST"],
        response_model=None,
        responses={200: {"model": models.OpenPause}, **refused},
        openapi_extra=body_docs(models.Reissue, required=False),
    )
    router.add_api_route(
        "/pending/{interrupt_id}/revoke",
        revoke,
        methods=["POST"],
        status_code=204,
        response_model=None,
        responses=refused,
        openapi_extra=body_docs(models.Revoke, required=True),
    )
