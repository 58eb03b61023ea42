"""`worker` and `events --follow`: they see what other processes do, end when they are told to, and lose nothing when killed."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from datetime import timedelta
from typing import IO

import pytest

from tests.cli.conftest import SECONDS, TOKEN, Shop


def next_line(stream: IO[str] | None) -> str:
    """The next line; an empty text where the process has ended."""
    assert stream is not None
    return stream.readline()


def until_applied(shop: Shop, interrupt_id: str, process: subprocess.Popen[str]) -> None:
    """Look at the pause until its answer is part of the graph's state."""
    while shop.state(interrupt_id) != "applied":
        assert process.poll() is None, "the worker ended"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)


@pytest.mark.parametrize("graph", ["shop", "async_shop"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_worker_delivers_until_it_is_told_to_end(any_shop: Shop, graph: str, number: int, code: int) -> None:
    interrupt_id = any_shop.ask()
    with any_shop.start("worker", "--interval", "0.1s", "--graph", f"tests.cli.applications:{graph}") as process:
        assert next_line(process.stderr) == f"worker of graph shop, process {process.pid}: started\n"
        any_shop.json("answer", interrupt_id, "--json", '{"approved": true}')
        until_applied(any_shop, interrupt_id, process)
        process.send_signal(number)
        output, errors = process.communicate(timeout=SECONDS)

    assert (process.returncode, output) == (code, "")
    lines = errors.splitlines()
    assert lines.count("ending after what is running; once more ends at once") == 1
    assert lines.count(f"thread t1: went on; applied {interrupt_id}") == 1
    assert lines[-1] == f"worker of graph shop, process {process.pid}: ended"
    assert not TOKEN.search(errors)
    assert any_shop.result() == "paid"


def test_a_worker_sweeps_too(shop: Shop) -> None:
    interrupt_id = shop.ask("timed", ago=timedelta(hours=1))
    with shop.start("worker", "--interval", "0.1s") as process:
        until_applied(shop, interrupt_id, process)
        process.terminate()
        _, errors = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert f"thread t1: went on; applied {interrupt_id}" in errors.splitlines()
    assert shop.result() == "too late"


def test_a_worker_says_of_a_delivery_that_failed_with_what(shop: Shop) -> None:
    interrupt_id = shop.ask()
    shop.json("answer", interrupt_id, "--json", '{"approved": true, "note": "fail"}')
    with shop.start("worker", "--interval", "0.1s") as process:
        while "thread t1: " not in (line := next_line(process.stderr)):
            assert line, "the worker ended"
        process.terminate()
        process.communicate(timeout=SECONDS)

    assert line == "thread t1: failed: the graph raised RuntimeError\n"
    assert process.returncode == 0


@pytest.mark.postgres
def test_what_a_killed_worker_left_another_one_finishes(postgres_shop: Shop) -> None:
    shop = postgres_shop
    interrupt_id = shop.ask()
    shop.json("answer", interrupt_id, "--json", '{"approved": true}')
    with shop.start("worker", "--interval", "0.1s", SHOP_STUCK="1") as first:
        next_line(first.stderr)
        assert next_line(first.stderr) == "a node prints\n"
    assert shop.result() is None

    with shop.start("worker", "--interval", "0.1s") as second:
        until_applied(shop, interrupt_id, second)
        second.terminate()
        second.communicate(timeout=SECONDS)

    assert second.returncode == 0
    assert shop.result() == "paid"


def test_a_second_signal_ends_a_worker_that_is_stuck(shop: Shop) -> None:
    shop.json("answer", shop.ask(), "--json", '{"approved": true}')
    with shop.start("worker", SHOP_STUCK="1") as process:
        next_line(process.stderr)
        assert next_line(process.stderr) == "a node prints\n"
        process.terminate()
        assert next_line(process.stderr) == "ending after what is running; once more ends at once\n"
        process.terminate()
        process.communicate(timeout=SECONDS)

    assert process.returncode == -signal.SIGTERM


def test_a_worker_whose_store_cannot_be_used_ends_with_the_errors_code(shop: Shop) -> None:
    (shop.folder / "bare.py").write_text(
        "from contextlib import contextmanager\nfrom tests.cli import applications\nimport sqlalchemy, os\n"
        "@contextmanager\ndef shop():\n    with applications.shop() as adapter:\n"
        "        with sqlalchemy.create_engine(os.environ['SHOP_STORE']).begin() as connection:\n"
        "            connection.exec_driver_sql('DROP TABLE interrupt_pauses')\n"
        "        yield adapter\n"
    )
    shop.environment["PYTHONPATH"] = str(shop.folder)

    done = shop.run("worker", "--graph", "bare:shop")

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[1].startswith("store_error: ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_events_are_followed_as_they_are_recorded(any_shop: Shop, number: int, code: int) -> None:
    interrupt_id = any_shop.ask()
    with any_shop.start("events", "--follow", "--json", "--interval", "0.1s") as process:
        found = [json.loads(next_line(process.stdout))]
        any_shop.json("answer", interrupt_id, "--json", '{"approved": true}')
        found.append(json.loads(next_line(process.stdout)))
        process.send_signal(number)
        rest, errors = process.communicate(timeout=SECONDS)

    assert [event["type"] for event in found] == ["interrupt", "interrupt_resolved"]
    assert (process.returncode, rest, errors) == (code, "", "")


def test_only_new_events_are_followed_on_demand(shop: Shop) -> None:
    first = shop.ask(thread="t1")
    with shop.start("events", "--follow", "--new", "--limit", "1", "--interval", "0.1s", "--json") as process:
        assert process.stdout is not None
        with shop.opened() as adapter:
            number = 2
            while not select.select([process.stdout], [], [], 0.1)[0]:  # it says nothing before it has begun
                config = {"configurable": {"thread_id": f"t{number}"}}
                adapter.graph.invoke({"ask": "refund", "order": "B"}, config)
                number += 1
        output, _ = process.communicate(timeout=SECONDS)

    (event,) = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == 0
    assert event["interrupt_id"] != first
    assert event["body"]["payload"]["order"] == "B"
