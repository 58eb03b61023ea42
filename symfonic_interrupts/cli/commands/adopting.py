"""`adopt`: tokens for questions that were asked before this library came.

It shows no token; whoever is to answer gets them from `pending`, as of any other pause.
"""

from __future__ import annotations

from typing import Annotated

import typer

from symfonic_interrupts.cli import output
from symfonic_interrupts.cli.exits import with_exit_code
from symfonic_interrupts.cli.loading import opened
from symfonic_interrupts.cli.options import AppDir, AsJson, Graph, Namespace, SubTenant, Tenant, scope_of
from symfonic_interrupts.cli.reports import adoption_data


@with_exit_code
def adopt(
    threads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[THREAD_ID]...", help="These threads. Else all, for which every checkpoint is read."),
    ] = None,
    graph: Graph = None,
    app_dir: AppDir = None,
    tenant: Tenant = None,
    sub_tenant: SubTenant = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Open a pause for each plain interrupt() that waits already in a node that a point covers. Runs no node.

    Each belongs to the tenant that its thread names; with --tenant only threads of that tenant, and those that name none.
    """
    scope = scope_of(tenant, sub_tenant, namespace)
    with opened(graph, app_dir) as calls:
        found = adoption_data(calls(calls.adapter, "adopt", threads or None, scope=scope))
    if as_json:
        output.document(found)
        return
    for pause in found["adopted"]:
        output.line(f"adopted {pause['interrupt_id']} of {pause['thread_id']}")
    for left in found["left"]:
        where = f"{left['thread_id']} {left['node'] or left['langgraph_id'] or ''}".rstrip()
        output.line(f"left {where}: {left['code']}: {left['reason']}")
    if not found["adopted"] and not found["left"]:
        output.say("no question waits without a pause")
