# ruff: noqa: F401, F811 - fixtures are imported by their names
"""A replica whose history is not the primary's, which its positions in the log do not say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from django.db import connection

from portal.core import replica
from tests import builders
from tests.integration.test_recovery_to_a_moment import Archiving, served_by
from tests.integration.test_replica import (
    TENANT,
    Standby,
    comes_from_replica,
    primary,
    read_from,
    replayed,
    standby,
    until,
)
from tests.web.house import a_house, signed_in

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_a_promoted_replica_is_not_read(standby: Standby) -> None:
    house = a_house(close=False)
    replayed()
    standby.promote()
    assert "no standby" in replica.watch.look().trouble
    assert not comes_from_replica(signed_in(house.op), TENANT)[1]


def test_a_standby_that_follows_a_promoted_one_is_read_once_it_is_on_its_timeline(
    primary: Archiving, tmp_path: Path
) -> None:
    first = Standby(tmp_path / "first", primary=primary)
    second = Standby(tmp_path / "second", primary=primary)
    for server in (first, second):
        server.begin()
    second.set("primary_conninfo", first.owner_url())
    with first, second, read_from(second):
        op = signed_in(builders.an_operator())
        replayed()
        primary.kill()
        first.promote()
        with served_by(first):
            builders.a_tenant("new-lab")
            until(lambda: shows_timeline_of_primary(second))
            replayed()
            body, from_replica = comes_from_replica(op, "/operator/tenants/new-lab/")
            assert ("new-lab" in body, from_replica) == (True, True)


def shows_timeline_of_primary(standby: Standby) -> bool:
    standby.note_timeline()
    return not replica.watch.look().trouble


@pytest.mark.parametrize(
    ("archive", "reason"), [(True, "it is on timeline 1, and the primary on 2"), (False, "ahead")]
)
def test_a_replica_of_before_the_primary_was_put_back_is_not_read(
    primary: Archiving, standby: Standby, tmp_path: Path, *, archive: bool, reason: str
) -> None:
    """Recovered to an earlier moment, which begins a timeline; or its disk, of a snapshot."""
    house = a_house(close=False)
    earlier = Standby(tmp_path / "earlier", primary=primary)
    earlier.begin()
    builders.a_tenant("undone-lab")
    emit(1)
    replayed()
    primary.kill()
    shutil.rmtree(primary.data)
    (earlier.data / "standby.signal").unlink()
    if archive:
        (earlier.data / "recovery.signal").touch()
        earlier.set("restore_command", "false")
    earlier.data.rename(primary.data)
    primary.ensure()
    until(is_writable)
    assert reason in replica.watch.look().trouble
    body, from_replica = comes_from_replica(signed_in(house.op), "/operator/")
    assert ("undone-lab" in body, from_replica) == (False, False)
    if archive:  # nor once it has written as much again
        emit(4)
        replica.watch.forget()
        assert reason in replica.watch.look().trouble


def emit(size: int) -> None:
    """MiB into the log."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_logical_emit_message(true, 'tests', repeat('x', %s))", [size * 2**20])


def is_writable() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT pg_is_in_recovery()")
        return bool(cursor.fetchone()[0])
