"""What these tests share: where the examples are, what a token looks like, and how a script is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]+\.eyJ")


def run_script(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an example as a person would, without a terminal, with warnings as errors."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}  # of the processes that it starts too
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
