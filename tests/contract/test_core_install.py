"""Without the extras: what the core dependencies serve works, and what they do not is refused with the extra's name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT_EXTRAS = """
import sys
for name in ("greenlet", "psycopg", "aiosqlite", "asyncpg"):
    sys.modules[name] = None  # as if it were not installed
"""

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.py"

URLS = (
    WITHOUT_EXTRAS
    + """
from symfonic_interrupts import Interrupts, KeyRing, StoreError
for url in ("postgresql+psycopg://x/y", "postgresql+asyncpg://x/y", "sqlite+aiosqlite:///a.db"):
    try:
        Interrupts(url, keys=KeyRing([b"a test key of thirty-two bytes.."]))
    except StoreError as error:
        print(error)
try:
    Interrupts(object(), keys=KeyRing([b"a test key of thirty-two bytes.."]))
except StoreError as error:
    print(error)
"""
)


def run(code: str, folder: Path) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_quickstart_runs_with_the_core_dependencies_alone(tmp_path: Path) -> None:
    code = WITHOUT_EXTRAS + f"import runpy; runpy.run_path({str(QUICKSTART)!r}, run_name='__main__')"
    assert run(code, tmp_path)[-1] == "result: paid"


def test_a_store_that_needs_an_extra_names_it(tmp_path: Path) -> None:
    psycopg, asyncpg, aiosqlite, other = run(URLS, tmp_path)
    assert "'symfonic-interrupts[postgres]'" in psycopg
    assert "'symfonic-interrupts[async]'" in asyncpg
    assert "postgresql+psycopg" in asyncpg
    assert "sqlite:///" in aiosqlite
    assert "AsyncEngine" in other
