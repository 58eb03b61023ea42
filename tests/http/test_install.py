"""The extra is an extra: the package does without FastAPI, and says what to install where it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from symfonic_interrupts.contrib import fastapi


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_package_does_not_import_fastapi() -> None:
    extra = ("fastapi", "starlette", "sse_starlette", "uvicorn")

    done = run(f"import symfonic_interrupts, sys; print([name for name in {extra} if name in sys.modules])")

    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("missing", ["fastapi", "sse_starlette"])
def test_without_the_extra_the_import_says_what_to_install(missing: str) -> None:
    done = run(
        f"import sys; sys.modules[{missing!r}] = None\nfrom symfonic_interrupts.contrib.fastapi import interrupt_router"
    )

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "ImportError: symfonic_interrupts.contrib.fastapi needs its extra: pip install 'symfonic-interrupts[fastapi]'"
    )


def test_the_names_of_the_router_stay_importable() -> None:
    names = ["Identity", "Problem", "interrupt_router"]

    assert fastapi.__all__ == names
    assert all(hasattr(fastapi, name) for name in names)


@pytest.mark.parametrize("missing", ["fastapi", "sse_starlette"])
def test_without_the_extra_the_other_extras_can_still_be_imported(missing: str) -> None:
    done = run(f"import sys; sys.modules[{missing!r}] = None\nimport symfonic_interrupts.contrib.langchain")

    assert (done.returncode, done.stderr) == (0, "")
