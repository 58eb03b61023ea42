"""What a hostile thread id, a password among a URL's parameters and a rotation by an administrator must not bring about."""

from __future__ import annotations

import os
from datetime import timedelta

import pexpect
import pytest
import sqlalchemy as sa

from symfonic_interrupts import FrameworkTenantScope, KeyRing, UsageError
from symfonic_interrupts.cli.key_files import replace_key_file
from symfonic_interrupts.store.engines import shown_url
from tests.cli.conftest import Shop


@pytest.mark.parametrize("thread", ["order [/closed]", "[link=http://evil.example]x[/link]"])
def test_a_thread_id_that_looks_like_markup_is_shown_as_it_is_and_its_graph_runs(shop: Shop, thread: str) -> None:
    interrupt_id = shop.ask(thread=thread)
    terminal = shop.terminal("answer", interrupt_id, "--json", '{"approved": true}', "--deliver")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert (terminal.exitstatus, shop.result(thread)) == (0, "paid")
    assert f"running thread {thread}" in (terminal.before or "")


def test_a_password_among_the_parameters_of_a_store_is_not_shown() -> None:
    url = sa.make_url("postgresql+psycopg://me:one@db/app?password=two&sslpassword=three&sslmode=require")

    assert shown_url(url) == "postgresql+psycopg://me:***@db/app?sslmode=require"


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator can give a file away")
def test_a_key_file_of_somebody_else_is_not_rotated_by_an_administrator_and_stays_as_it_was(shop: Shop) -> None:
    file = shop.folder / "keys"
    keys = [KeyRing.new_key(), KeyRing.new_key()]
    replace_key_file(file, keys)
    os.chown(file, 1234, 1235)

    done = shop.run("keys", "rotate", "sign", "--keys-file", str(file), SYMFONIC_INTERRUPTS_KEYS=None)

    found = file.stat()
    assert (done.returncode, done.stdout) == (3, "")
    assert "key_ring_error: key file keys belongs to user 1234" in done.stderr
    assert (found.st_uid, found.st_gid, file.read_text().split()) == (1234, 1235, keys)


def test_a_new_token_for_no_time_at_all_is_refused(shop: Shop) -> None:
    interrupt_id = shop.ask()

    with shop.opened() as adapter, pytest.raises(UsageError, match="above zero"):
        adapter.reissue(interrupt_id, ttl=timedelta(0), scope=FrameworkTenantScope("acme"))
