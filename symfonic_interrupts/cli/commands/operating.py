"""`failed`, `reissue` and `revoke`: for when a graph raised, a token was lost, or a question must be withdrawn.

`reissue` shows the new token only if `--token` is passed; whoever is to answer gets it from `pending`, as before.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import with_exit_code
from symfonic_interrupts.cli.loading import opened
from symfonic_interrupts.cli.options import (
    AppDir,
    AsJson,
    Graph,
    InterruptId,
    Namespace,
    OfThread,
    SubTenant,
    Tenant,
    Token,
    interval,
    scope_of,
)
from symfonic_interrupts.cli.reports import failed_thread_data


@with_exit_code
def failed(
    graph: Graph = None,
    app_dir: AppDir = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List threads, of all tenants, that failed after an answer. `deliver` tries one again; nothing else does."""
    with opened(graph, app_dir) as calls:
        threads = [failed_thread_data(thread) for thread in calls(calls.adapter, "failed", limit=limit)]
    if as_json:
        output.document(threads)
        return
    rows = []
    for thread in threads:
        error = ": ".join(part for part in (thread["error_type"], thread["message"]) if part)
        rows.append([thread["thread_id"], thread["at"] or "", thread["node"] or "", error])
    output.rows(["thread", "when (UTC)", "node", "error"], rows)
    if not threads:
        output.say("no thread failed")


@with_exit_code
def reissue(
    interrupt_id: InterruptId,
    ttl: Annotated[
        timedelta | None,
        typer.Option("--ttl", parser=interval, metavar="DURATION", help="How long it lasts. Else as the point says."),
    ] = None,
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    thread: OfThread = None,
    token: Token = False,
    as_json: AsJson = False,
) -> None:
    """Give a pending or expired pause a new token and new time. The old token is dead from then on."""
    scope = scope_of(tenant, sub_tenant, namespace)
    with opened(graph, app_dir) as calls:
        event = calls(calls.adapter, "reissue", interrupt_id, ttl=ttl, scope=scope, thread_id=thread)
    if as_json:
        output.document(event.model_dump(mode="json", exclude=set() if token else {"pause_token"}))
        return
    shown = [
        ("interrupt_id", event.interrupt_id),
        ("name", event.name),
        ("thread", event.thread_id),
        ("expires", f"{event.expires_at:%Y-%m-%d %H:%M:%S} UTC"),
    ]
    output.fields(shown + ([("pause_token", event.pause_token)] if token else []))


@with_exit_code
def revoke(
    interrupt_id: InterruptId,
    reason: Annotated[str, typer.Option("--reason", help="Why; 1 to 1,000 characters. It is recorded.")],
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    thread: OfThread = None,
    as_json: AsJson = False,
) -> None:
    """Kill the token of a pending pause: it can be answered no more. The thread stays where it is."""
    scope = scope_of(tenant, sub_tenant, namespace)
    with opened(graph, app_dir) as calls:
        calls(calls.adapter, "revoke", interrupt_id, reason=reason, scope=scope, thread_id=thread)
    if as_json:
        output.document({"interrupt_id": interrupt_id, "state": "revoked"})
    else:
        output.line(f"revoked {interrupt_id}")
