"""LangGraph interrupts that count once.

A graph author names a place where the graph waits for a person. The graph pauses there; a signed token goes out on its
stream; whoever presents it with a valid answer, once, in time and in the right tenant, moves the graph on.

`__all__` is what most applications need. All errors are in `symfonic_interrupts.errors`, all events in
`symfonic_interrupts.events`; they can be imported from here, too.

The names stand in `_public` and `_public_too`, and are imported when the first of them is used: LangGraph takes seconds, and a
command that only shows its version or its help needs none of it.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symfonic_interrupts._public import *  # noqa: F403 - its __all__ says what
    from symfonic_interrupts._public import __all__ as __all__
    from symfonic_interrupts._public_too import *  # noqa: F403
else:  # for type checkers a name that is not there stays an error

    def __getattr__(name: str) -> object:
        if name != "__all__" and name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if _find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        public, more = (importlib.import_module(f"{__name__}.{part}") for part in ("_public", "_public_too"))
        globals().update({known: getattr(part, known) for part in (public, more) for known in part.__all__})
        globals()["__all__"] = public.__all__
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*__getattr__("__all__"), *globals()})
