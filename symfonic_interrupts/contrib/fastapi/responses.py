"""Responses with JSON bodies, which no cache keeps."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from symfonic_interrupts.contrib.fastapi.json_output import json_data

NO_STORE = {"Cache-Control": "no-store"}


class ProblemResponse(JSONResponse):
    """A problem document (RFC 9457)."""

    media_type = "application/problem+json"


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    """Any value as JSON."""
    return JSONResponse(json_data(content), status_code=status, headers={**NO_STORE, **(headers or {})})
