"""A FastAPI router with which people list, look at and answer the pauses of one graph, and programs follow what happens.

    app.include_router(interrupt_router(adapter, identity=who_is_calling), prefix="/refunds")

Who is calling comes from the application's own dependency, never from the request. GET and HEAD change nothing. No token is
taken from a URL. However much one tenant sends, the others keep their share of the process.
Needs the extra: `pip install 'symfonic-interrupts[fastapi]'`.
"""

from __future__ import annotations

try:
    from symfonic_interrupts.contrib.fastapi.problems import Problem
    from symfonic_interrupts.contrib.fastapi.router import interrupt_router
    from symfonic_interrupts.identity import Identity
except ImportError as error:
    raise ImportError(
        f"symfonic_interrupts.contrib.fastapi needs its extra: pip install 'symfonic-interrupts[fastapi]' ({error})"
    ) from error

__all__ = ["Identity", "Problem", "interrupt_router"]
