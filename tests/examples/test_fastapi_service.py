"""The web service of the examples starts for real, and its tour goes through the main job."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.scripts import EXAMPLES, TOKEN, run_script

APP = EXAMPLES / "fastapi_service" / "app.py"

STORY = """\
1. two refunds in the north shop, one in the south shop
2. open questions: north 2, south 1, globex 0
3. north is asked 30; fields of an answer: approved note
4. a bad answer: 422 response_invalid
5. a good answer, streamed: accepted updates interrupt_resolved done
6. the same token again: 409 token_consumed
7. open questions below the admin: 2
8. the admin declined them, across scopes
9. what is recorded in the south shop: interrupt interrupt_cross_scope interrupt_resolved
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The service on a free port: its address, and the lines of its log."""
    command = [sys.executable, "-W", "error", str(APP), "--port", "0", "--data", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    addresses: list[str] = []
    up = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"running on (http://[0-9.]+:[0-9]+)", line):
                addresses.append(found[1])
                up.set()
        up.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert up.wait(60), "the service did not start"
        assert addresses, "".join(lines)
        yield addresses[0], lines
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def test_the_tour_goes_through_the_main_job(service: tuple[str, list[str]], tmp_path: Path) -> None:
    address, lines = service

    done = run_script("fastapi_service/tour.py", address, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == STORY
    assert not TOKEN.search(done.stdout + "".join(lines))


def test_the_tour_may_be_taken_twice(service: tuple[str, list[str]], tmp_path: Path) -> None:
    run_script("fastapi_service/tour.py", service[0], cwd=tmp_path)

    again = run_script("fastapi_service/tour.py", service[0], cwd=tmp_path)

    assert again.stdout.startswith("1. two refunds")
    assert "7. open questions below the admin: 2" in again.stdout
