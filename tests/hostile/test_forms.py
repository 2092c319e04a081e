"""Every form of every page, and what stands in addresses."""

from __future__ import annotations

import pytest

from tests.hostile.forms import Form, assert_is_an_answer, forms_of
from tests.hostile.mangling import INPUTS, Mangler
from tests.web.house import House, a_house, signed_in
from tests.web.test_access import ACTS, OPERATORS, TENANTS, address

pytestmark = [pytest.mark.django_db, pytest.mark.larger, pytest.mark.peers]  # takes long

PARAMETERS = (
    "period", "page", "after", "before", "q", "user", "account", "state", "model", "month", "from", "to", "by",
    "tenant",
    "cluster", "code", "sort", "hours", "gpus", "at", "session", "version", "since", "until", "currency", "show",
    "name",
)  # fmt: skip
"""Names that addresses of some page have; a page passes over what it does not know."""


def pages(house: House) -> dict[str, str]:
    """The address of each page that opens, with who opens it."""
    ours = {address(route, house): "ann" for route in TENANTS if route not in ACTS}
    return ours | {address(route, house): "op" for route in OPERATORS}


def test_whatever_is_sent_by_a_form_is_answered() -> None:
    house = a_house()
    clients = {"ann": signed_in(house.ann), "op": signed_in(house.op)}
    forms: list[tuple[str, Form]] = []
    for path, who in pages(house).items():
        answer = clients[who].get(path)
        if answer.status_code == 200 and "html" in answer["Content-Type"] and not answer.streaming:
            forms += [(who, form) for form in forms_of(path, answer.content.decode())]
    assert len({form.path for _, form in forms if form.method == "POST"}) >= 7
    chance = Mangler(26)
    for number in range(INPUTS):
        who, form = forms[number % len(forms)]
        fields = chance.spoil_form(form.fields)
        assert_is_an_answer((form.path, fields), form.sent(clients[who], fields))


def test_whatever_an_address_asks_for_is_answered() -> None:
    house = a_house()
    clients = {"ann": signed_in(house.ann), "op": signed_in(house.op)}
    chance, opened = Mangler(27), list(pages(house).items())
    for number in range(INPUTS):
        path, who = opened[number % len(opened)]
        query = {name: chance.text() for name in chance.sample(PARAMETERS, k=3)}
        assert_is_an_answer((path, query), Form(path, "GET", {}).sent(clients[who], query))
