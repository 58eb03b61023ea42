"""The installed script is the command line."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path


def test_the_installed_script_is_the_command_line() -> None:
    (script,) = entry_points(group="console_scripts", name="symfonic-interrupts")

    done = subprocess.run(
        [str(Path(sys.executable).with_name("symfonic-interrupts")), "--version"], capture_output=True, text=True
    )

    assert script.value == "symfonic_interrupts.cli:main"
    assert (done.returncode, done.stdout.split()[0]) == (0, "symfonic-interrupts")
