"""Every address × every kind of key: one table says what each is answered. Case 19 of the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from portal.api import identifiers, keys
from portal.api.routes import routes
from portal.core.tenants.access import Action
from tests.api.door import Door, a_key, door
from tests.hostile.filters import filters_removed
from tests.web.house import House

pytestmark = pytest.mark.django_db


def addresses(house: House) -> dict[str, str]:
    """Each route with the vision lab's own objects in it; one that is not known here fails."""
    number = str(house.invoice.number)
    job = identifiers.write("job", house.record("17"))
    wallet = identifiers.write("wal", house.wallet.pk)
    names = {"invoices": number, "jobs": job, "wallets": wallet}
    patterns = [str(route.pattern) for route in routes]
    return {
        pattern: "/" + pattern.replace("<str:name>", names.get(pattern.split("/")[0], "?"))
        for pattern in patterns
    }


FILES = {
    "invoices/<str:name>/pdf": 409,
    "invoices/<str:name>/einvoice.xml": 409,
    "invoices/<str:name>/evidence.zip": 409,
}
"""Nothing of the house is rendered."""
NEEDS = {"me": None, "status": Action.READ, "jobs": Action.READ}
"""The right that the first part of an address needs; all others need READ_INVOICES."""


def expired(house: House) -> Door:
    long_ago = datetime.now(UTC) - timedelta(days=2)
    return door(house.ann, house.vision, moment=long_ago, expires_at=long_ago + timedelta(days=1))


def revoked(house: House) -> Door:
    new = a_key(house.ann, house.vision)
    keys.revoke(key=new.key, moment=datetime.now(UTC))
    return Door(new.secret)


CLIENTS: dict[str, Callable[[House], Door]] = {
    "none": lambda house: Door(""),
    "expired": expired,
    "revoked": revoked,
    "eve": lambda house: door(house.eve, house.speech),
    "ben": lambda house: door(house.ben, house.vision),
    "usage only": lambda house: door(house.ann, house.vision, "usage:read"),
    "of another project": lambda house: door(
        house.ann, house.vision, project=house.vision.projects.create(name="other")
    ),
    "operator": lambda house: door(house.op, None),
    "ann": lambda house: door(house.ann, house.vision),
}


def expected(route: str, client: str) -> int:
    """What the address answers this key."""
    area, is_one = route.split("/", maxsplit=1)[0], "<" in route
    need = NEEDS.get(area, Action.READ_INVOICES)
    refusals = {
        401: client in {"none", "expired", "revoked"},
        200: area == "me",
        403: (client == "ben" and need is Action.READ_INVOICES)
        or (client == "usage only" and area != "status")
        or (client == "of another project" and area in {"invoices", "payments"}),
        404: client in {"eve", "of another project"} and is_one,
        400: client == "operator" and area == "jobs",  # it has to name the tenant
    }
    return next((status for status, holds in refusals.items() if holds), FILES.get(route, 200))


@pytest.mark.parametrize("client", CLIENTS)
def test_api_019_every_address_answers_each_kind_of_key_as_the_table_says(house: House, client: str) -> None:
    paths, key = addresses(house), CLIENTS[client](house)
    answers = {route: key.get(path).status for route, path in paths.items()}
    assert answers == {route: expected(route, client) for route in paths}


def test_api_019_with_all_filters_removed_the_database_still_shows_strangers_nothing(house: House) -> None:
    """Whose key it is stays; that the rows are its tenant's, only the database says."""
    paths = addresses(house)
    eve = door(house.eve, house.speech)
    with filters_removed() as removed:
        answers = {route: eve.get(path) for route, path in paths.items()}
    assert removed.count > 0
    for route, answer in answers.items():
        if route == "status":  # clusters are chosen by ownership, outside of the tenant's rows
            continue
        assert answer.status == (404 if "<" in route else 200), route
        assert b"vision" not in answer.raw, route
        assert house.invoice.number is not None
        assert house.invoice.number.encode() not in answer.raw, route
