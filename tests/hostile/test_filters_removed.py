"""The walk of the URL table without any filter by tenant: what still keeps strangers out is the database itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4
from zipfile import ZipFile

import pytest
from django.db import connection
from django.test import Client

from billing.models import CheckoutSession, RatedJob
from portal.core.tenants.models import User
from tests import builders
from tests.hostile.filters import filters_removed, without_filters
from tests.web.house import House, a_house, signed_in
from tests.web.test_access import ACTS, TENANTS, address

pytestmark = pytest.mark.django_db

VISION = re.compile(r"\b(vision|Vision Lab|train|ada|ben|4242|Gate 1)\b|vision-(?!lab/)")
"""What only the vision lab has: its people, its jobs, its card, its address."""
WRITTEN = {
    "amount": "50.00",
    "by": "card",
    "key": "",
    "act": "prefer",
    "automatic": "yes",
    "below": "1",
    "most": "9",
}
TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
WHERE c.relrowsecurity AND c.relname <> 'audit_entry' ORDER BY 1
"""


def test_the_filters_are_found_in_each_way_of_writing_them() -> None:
    for sql in (
        'SELECT 1 FROM x WHERE "x"."tenant_id" = %s AND a = %s',
        "SELECT 1 FROM x t WHERE t.tenant_id = %(tenant)s",
        "PREPARE ask AS SELECT 1 FROM x WHERE tenant_id = $1",
        "SELECT 1 FROM x WHERE tenant_id = 10001",
        'SELECT 1 FROM x WHERE "x"."tenant_id" IN (%s, %s)',
        "SELECT 1 FROM x WHERE payer_id = ANY (%(tenants)s)",
    ):
        text, count = without_filters(sql)
        assert (count, "tenant_id" in text, "payer_id" in text) == (1, False, False), sql
    statement = "SELECT 1 FROM a JOIN b ON b.tenant_id = a.id WHERE a.slug = %s"
    assert without_filters(statement) == (statement, 0)


def test_without_a_scope_a_forgotten_filter_would_show_everybodys_rows() -> None:
    """So that the walk below is one that could fail."""
    house = a_house()
    with filters_removed() as removed:
        seen = set(RatedJob.objects.filter(tenant=house.speech).values_list("tenant_id", flat=True))
    assert seen == {house.vision.pk, house.speech.pk}
    assert removed.count == 1


@pytest.mark.peers
def test_without_filters_a_stranger_finds_and_changes_nothing() -> None:
    house, link = a_house_that_pays()
    walk(house, link, {"eve": house.eve})


@pytest.mark.long
def test_without_filters_no_stranger_finds_or_changes_anything() -> None:
    house, link = a_house_that_pays()
    left = builders.a_person("lea@vision.example", house.vision)
    left.memberships.all().delete()
    nobody = builders.a_person("nora@nowhere.example")
    walk(
        house,
        link,
        {"eve": house.eve, "left": left, "nobody": nobody, "ben": house.ben, "op": house.op, "": None},
    )


def a_house_that_pays() -> tuple[House, CheckoutSession]:
    house = a_house()
    assert (house.wallet.tenant, house.card.tenant) == (house.vision, house.vision)
    link = CheckoutSession.objects.create(
        pk=uuid4(),
        tenant=house.vision,
        external_id="cs_of_vision",
        created_at=builders.at("2026-04-01"),
        params={},
    )
    return house, link


def walk(house: House, link: CheckoutSession, strangers: Mapping[str, User | None], *aliases: str) -> None:
    """Every address by each of them, opened and posted to: the vision lab's, and their own with its objects."""
    queries = {
        "t/<slug:slug>/payment/back/": f"?{urlencode({'session': link.external_id})}",
        "t/<slug:slug>/payment/stopped/": f"?{urlencode({'page': link.pk})}",
    }
    paths = [
        (route, slug, address(route, house, slug) + queries.get(route, ""))
        for route in TENANTS
        for slug in ("vision-lab", "speech-lab")
    ]
    clients = {name: signed_in(person) if person else Client() for name, person in strangers.items()}
    before = rows(house)
    with filters_removed(*aliases) as removed:
        for name, client in clients.items():
            for route, slug, path in paths:
                for answer in (client.get(path), client.post(path, WRITTEN)):
                    judge(name, route, slug, answer)
    assert removed.count > 50 * ("eve" in strangers)
    assert rows(house) == before


def judge(name: str, route: str, slug: str, answer: Any) -> None:
    what = (name, route, slug, answer.status_code)
    if (name in {"ben", "op"} and slug == "vision-lab") or name == "op":
        # Ben is a member, and operators look into every tenant; neither acts in its name.
        assert answer.status_code in ({200, 404, 405, 409} if route not in ACTS else {404, 405}), what
        return
    if not name:
        assert answer.status_code in {302, 405}, what
        return
    own = name == "eve" and slug == "speech-lab"
    assert answer.status_code in ({200, 302, 404, 405} if own else {404, 405}), what
    if own and answer.status_code == 200:
        # With the name of an object of another's there is nothing; a finding is a choice of the page, nobody's object.
        assert route.count("<") == 1 or "<slug:finding>" in route, what
        assert not (leak := VISION.search(text_of(answer))), (what, leak)


def text_of(answer: Any) -> str:
    """What can be read in it; of an archive, in all of its files."""
    body = b"".join(answer) if answer.streaming else answer.content
    if answer.headers["Content-Type"] != "application/zip":
        return str(body.decode())
    with ZipFile(BytesIO(body)) as archive:
        return "\n".join(archive.read(name).decode(errors="replace") for name in archive.namelist())


def rows(house: House) -> dict[str, str]:
    """A digest of all that is the vision lab's, by table."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = [name for (name,) in cursor.fetchall()]
        digests = {}
        for table in tables:
            cursor.execute(
                f"SELECT md5(coalesce(string_agg(t::text, ' ' ORDER BY t::text), '')) FROM {table} t"
                " WHERE tenant_id = %s",
                [house.vision.pk],
            )
            (digests[table],) = cursor.fetchone()
    return digests
