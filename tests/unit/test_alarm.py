"""One thread that calls back later."""

from __future__ import annotations

import subprocess
import sys
import threading

from symfonic_interrupts.core.alarm import Alarm

LONG = 3600.0


def test_a_function_is_called_at_its_time_also_behind_one_that_is_due_much_later() -> None:
    alarm, called = Alarm(), threading.Event()

    alarm.set("later", LONG, lambda: None)
    alarm.set("soon", 0.01, called.set)

    assert called.wait(20)
    alarm.take_back("later")


def test_what_is_taken_back_is_never_called() -> None:
    alarm, called, after = Alarm(), [], threading.Event()
    alarm.set("one", 0.05, lambda: called.append("one"))
    alarm.take_back("one")

    alarm.set("two", 0.1, after.set)

    assert after.wait(20)
    assert called == []
    alarm.take_back("never set")  # is no error


def test_its_thread_ends_with_the_last_function_and_a_new_one_starts_with_the_next() -> None:
    alarm, first, second = Alarm(), threading.Event(), threading.Event()
    alarm.set("first", 0.01, first.set)
    thread = alarm._thread
    assert thread is not None
    assert first.wait(20)
    thread.join(20)
    assert not thread.is_alive()

    alarm.set("second", 0.01, second.set)

    assert second.wait(20)


def test_1000_functions_set_and_taken_back_by_8_threads_leave_one_thread_and_nothing_to_call() -> None:
    alarm = Alarm()
    keep = threading.Event()
    alarm.set("keep", LONG, keep.set)

    def work(name: int) -> None:
        for n in range(125):
            alarm.set((name, n), LONG, keep.set)
            alarm.take_back((name, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert alarm._thread is not None
    assert alarm._thread.is_alive()
    assert list(alarm._calls) == ["keep"]
    assert not keep.is_set()
    alarm.take_back("keep")


def test_a_forked_process_makes_none_of_its_parents_calls_and_its_own_in_time() -> None:
    """In a process of its own: forking this one, with its threads, would be a test of something else."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines() == ["the child's own"]


FORKS = """
import os, threading, time
from symfonic_interrupts.core.alarm import Alarm

alarm, own = Alarm(), threading.Event()
say = lambda text: os.write(1, text.encode() + b"\\n")
alarm.set("the parent's", 0.3, lambda: say("the parent's in the child") if os.getpid() != parent else None)
parent = os.getpid()
child = os.fork()
if child == 0:
    alarm.set("own", 0.5, own.set)
    say("the child's own" if own.wait(20) else "nothing")
    os._exit(0)
end = time.monotonic() + 20
while os.waitpid(child, os.WNOHANG) == (0, 0):
    if time.monotonic() > end:
        os.kill(child, 9)
        end += 60
    time.sleep(0.01)
"""
