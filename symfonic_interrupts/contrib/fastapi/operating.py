"""The routes for operators, who give a pause a new token or take its token away."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response
from fastapi.params import Depends

from symfonic_interrupts.adapter.adapter import ResumeAdapter
from symfonic_interrupts.contrib.fastapi import models
from symfonic_interrupts.contrib.fastapi.identity import caller
from symfonic_interrupts.contrib.fastapi.openapi import READ_ERRORS, body_docs, problem_docs
from symfonic_interrupts.contrib.fastapi.parameters import InterruptId
from symfonic_interrupts.contrib.fastapi.problems import RequestInvalid
from symfonic_interrupts.contrib.fastapi.requests import Bodies
from symfonic_interrupts.contrib.fastapi.responses import NO_STORE, json_response
from symfonic_interrupts.contrib.fastapi.runs import Runs


class OperatorRoutes:
    """What an operator may do to a pause of their own scope. A pause of another scope is answered like one that is unknown."""

    def __init__(self, adapter: ResumeAdapter, runs: Runs, bodies: Bodies) -> None:
        self._adapter = adapter
        self._runs = runs
        self._bodies = bodies

    def add_to(self, router: APIRouter, identified: Depends) -> None:
        """Register the routes.

        Args:
            identified: from `identified_by`: which operator is calling.
        """
        refused = problem_docs(*READ_ERRORS, 404, 409, 413, 415, 425)
        router.add_api_route(
            "/pending/{interrupt_id}/reissue",
            self.reissue,
            methods=["POST"],
            response_model=None,
            dependencies=[identified],
            responses={200: {"model": models.OpenPause}, **refused},
            openapi_extra=body_docs(models.Reissue, required=False),
        )
        router.add_api_route(
            "/pending/{interrupt_id}/revoke",
            self.revoke,
            methods=["POST"],
            status_code=204,
            response_model=None,
            dependencies=[identified],
            responses=refused,
            openapi_extra=body_docs(models.Revoke, required=True),
        )

    async def reissue(self, request: Request, interrupt_id: InterruptId) -> Response:
        """A new token for a pending or expired pause. The old one is dead; the question stays the same."""
        who = caller(request)
        sent = await self._bodies.small(request, models.Reissue)
        ttl = None if sent.ttl_seconds is None else timedelta(seconds=sent.ttl_seconds)
        longest = self._adapter.config.max_ttl
        if ttl is not None and ttl > longest:
            message = f"must be at most {longest.total_seconds():.0f} (FrameworkConfig.max_ttl)"
            error = {"type": "less_than_equal", "loc": ["body", "ttl_seconds"], "msg": message}
            raise RequestInvalid(f"ttl_seconds {message}", errors=[error])
        await self._adapter.aview(interrupt_id, scope=who.scope)
        return json_response(await self._runs.reissue(interrupt_id, ttl, who))

    async def revoke(self, request: Request, interrupt_id: InterruptId) -> Response:
        """Kill the token of a pending pause. The thread stays where it is."""
        scope = caller(request).scope
        sent = await self._bodies.small(request, models.Revoke)
        await self._adapter.aview(interrupt_id, scope=scope)
        await self._adapter.arevoke(interrupt_id, reason=sent.reason, scope=scope)
        return Response(status_code=204, headers=NO_STORE)
