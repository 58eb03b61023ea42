"""The OpenAPI document says what the routes do: generated requests get documented answers, and a program can read it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from schemathesis.specs.openapi.checks import positive_data_acceptance

from symfonic_interrupts import FrameworkTenantScope, Interrupts
from symfonic_interrupts.contrib.fastapi import Identity, interrupt_router
from symfonic_interrupts.events import PauseEvent
from tests.http.service import Service

ORDERS = [f"A-{number}" for number in range(30)]
ROUTES = {
    "GET /refunds/pending": {200, 400, 401, 403, 422, 500, 503},
    "GET /refunds/pending/{interrupt_id}": {200, 400, 401, 403, 404, 422, 500, 503},
    "GET /refunds/failed": {200, 400, 401, 403, 422, 500, 503},
    "GET /refunds/events": {200, 400, 401, 403, 422, 429, 500, 503},
    "POST /refunds/inspect": {200, 400, 401, 403, 404, 409, 410, 413, 415, 422, 500, 503},
    "POST /refunds/resume/{name}": {200, 202, 400, 401, 403, 404, 409, 410, 413, 415, 422, 424, 425, 429, 500, 503},
    "POST /refunds/pending/{interrupt_id}/reissue": {200, 400, 401, 403, 404, 409, 413, 415, 422, 425, 500, 503},
    "POST /refunds/pending/{interrupt_id}/revoke": {204, 400, 401, 403, 404, 409, 413, 415, 422, 425, 500, 503},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, list[PauseEvent]]]:
    """An application, and some questions."""
    folder: Path = tmp_path_factory.mktemp("openapi")
    with Interrupts.local(folder / "interrupts.db") as interrupts:
        graph: Any = Service(interrupts).build().compile(checkpointer=interrupts.checkpointer(InMemorySaver()))
        adapter = interrupts.resume_adapter(graph)
        for order in ORDERS:
            graph.invoke({"order": order, "amount": 5}, {"configurable": {"thread_id": order}})
        pauses = adapter.pending()
        scope = FrameworkTenantScope("local")
        router = interrupt_router(
            adapter,
            identity=lambda: Identity(scope),
            operator=lambda: Identity(scope),
            longest_stream=timedelta(0),
            max_request_bytes=10_000,
            mode="sync",
        )
        app = FastAPI()
        app.include_router(router, prefix="/refunds")
        yield app, pauses


def test_every_route_documents_its_statuses(served: tuple[FastAPI, list[PauseEvent]]) -> None:
    document = served[0].openapi()

    found = {
        f"{method.upper()} {path}": {int(status) for status in operation["responses"]}
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }

    assert found == ROUTES


def test_every_error_is_documented_as_a_problem_document(served: tuple[FastAPI, list[PauseEvent]]) -> None:
    document = served[0].openapi()

    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    schema = response["content"]["application/problem+json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Problem"}
    assert document["components"]["schemas"]["Problem"]["required"] == ["type", "title", "status", "detail", "code"]


def test_the_answers_are_documented(served: tuple[FastAPI, list[PauseEvent]]) -> None:
    resume = served[0].openapi()["paths"]["/refunds/resume/{name}"]["post"]

    assert resume["requestBody"]["content"]["application/json"]["schema"]["required"] == ["response"]
    assert sorted(resume["responses"]["200"]["content"]) == ["application/json", "text/event-stream"]
    assert {parameter["name"] for parameter in resume["parameters"]} == {"name", "Idempotency-Key", "prefer"}


@pytest.mark.parametrize("route", ROUTES)
def test_generated_requests_get_documented_answers(served: tuple[FastAPI, list[PauseEvent]], route: str) -> None:
    app, pauses = served
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    method, path = route.split()
    operation = schema[path][method]
    seen: set[int] = set()

    @settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(), pause=st.sampled_from([None, *pauses]), approved=st.sampled_from([None, True]))
    def check(case: schemathesis.Case[Any], pause: PauseEvent | None, approved: bool | None) -> None:
        if pause is not None and isinstance(case.body, dict) and "interrupt_id" not in case.path_parameters:
            case.body["token"] = pause.pause_token
            if approved is not None and "response" in case.body:
                case.body["response"] = {"approved": approved}
                case.path_parameters["name"] = "approval"
        elif pause is not None and "interrupt_id" in case.path_parameters:
            case.path_parameters["interrupt_id"] = pause.interrupt_id
        response = case.call()
        seen.add(response.status_code)
        # no schema can say which text is a token or a cursor that was given out
        case.validate_response(response, excluded_checks=[positive_data_acceptance])

    check()

    assert seen
    assert not [status for status in seen if status >= 500]
    assert seen & {200, 204}
