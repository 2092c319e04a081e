"""Who gets in. The URL table itself is walked, so that a new page cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from portal.core.tenants.access import Action, DeniedError, entered
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

# Their own gates: keys, a token of the monitoring, a signature, a link, allauth's, the admin's; public keys.
PUBLIC = (
    "healthz",
    "readyz",
    "metrics",
    "hooks/",
    "accounts/",
    "admin/",
    ".well-known/",
    "api/",
    "invitations/",
    "pay/",
    "brand/",
)


def routes(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[str]:
    """`t/<slug:slug>/jobs/<int:record>/`, for every address of the site."""
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            yield route


PART = re.compile(r"<\w+:\w+>")
OURS = [route for route in routes(get_resolver().url_patterns) if not route.startswith(PUBLIC)]
TENANTS = [route for route in OURS if "<slug:slug>" in route]
# What is posted to, and where a hosted page leads back to with its name: no pages to open.
ACTS = {
    "t/<slug:slug>/wallets/<int:wallet>/top-up/": 405,
    "t/<slug:slug>/wallets/<int:wallet>/automatic/": 405,
    "t/<slug:slug>/api-keys/change/": 405,
    "t/<slug:slug>/webhooks/change/": 405,
    "t/<slug:slug>/team/change/": 405,
    "t/<slug:slug>/budgets/change/": 405,
    "t/<slug:slug>/idle-jobs/choose/": 405,
    "t/<slug:slug>/plan/choose/": 405,
    "t/<slug:slug>/team/leave/": 405,
    "t/<slug:slug>/payment/card/": 405,
    "t/<slug:slug>/payment/automatic/": 405,
    "t/<slug:slug>/billing/change/": 405,
    "t/<slug:slug>/notifications/change/": 405,
    "t/<slug:slug>/payment/methods/<int:method>/": 405,
    "t/<slug:slug>/payment/back/": 404,
    "t/<slug:slug>/payment/stopped/": 404,
    "t/<slug:slug>/invoices/<path:number>/links/": 405,
    "t/<slug:slug>/invoices/pay/": 405,
    "t/<slug:slug>/invoices/<path:number>/pay/": 405,
    "t/<slug:slug>/invoices/<path:number>/pay-saved/": 405,
}
# No document of the house is rendered, no bank asks for a confirmation, none of its March is left to be issued, an
# export has to be told its month, and none of all tenants was asked for.
NOT_YET = {
    "operator/clusters/<path:name>/api-server/": 302,  # of Kubernetes alone
    "operator/look/end/": 302,
    "operator/quarantine/dismiss/": 404,
    "t/<slug:slug>/exports/focus": 404,
    "operator/exports/focus/<int:export>/file": 302,  # with a sentence
    "operator/exports/ledger": 404,
    "t/<slug:slug>/invoices/<path:number>/xml": 404,
    "t/<slug:slug>/payment/confirm/<uuid:attempt>/": 404,
    "t/<slug:slug>/invoices/<path:number>/pdf": 409,
    "t/<slug:slug>/invoices/<path:number>/evidence": 409,
    "operator/close/<str:month>/<slug:tenant>/": 302,  # to what a worker draws up for whoever comes
    "operator/close/<str:month>/<slug:tenant>/<int:preview>/<int:place>/pdf": 404,
}
OWN = {"t/<slug:slug>/team/leave/", "t/<slug:slug>/notifications/change/"}  # what every member may do
OPERATORS = [route for route in OURS if route.startswith("operator/")]


def address(route: str, house: House, slug: str = "vision-lab") -> str:
    """The route with the vision lab's own objects in it; an unknown part fails, so that one is given here."""
    parts = house.parts_of_addresses | {"<slug:slug>": slug, "<slug:tenant>": slug}
    return "/" + PART.sub(lambda part: parts.get(part[0], part[0]), route)


def test_the_walk_sees_the_pages() -> None:
    assert len(TENANTS) >= 9
    assert all(route.startswith("t/<slug:slug>/") for route in TENANTS)
    assert len(OPERATORS) >= 3


def test_nobody_without_a_name_gets_in(house: House) -> None:
    for route in OURS:
        response = Client().get(address(route, house))
        assert (route, response.status_code) == (route, 302)
        assert response.headers["Location"].startswith("/accounts/login/?next=/")


@pytest.mark.parametrize(
    ("shown", "back"),
    [
        (
            "https://bills.example/t/vision-lab/jobs/?user=ada&q=1#rows",
            "/t/vision-lab/jobs/%3Fuser%3Dada%26q%3D1",
        ),
        ("https://bills.example/t/vision-lab/invoices/", "/t/vision-lab/invoices/"),
        ("http://[", "/"),
        ("", "/"),
    ],
)
def test_a_part_asked_for_after_the_session_ended_leads_the_whole_window_to_the_sign_in(
    shown: str, back: str
) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": shown}
    response = Client().get("/t/vision-lab/jobs/?q=17", headers=headers)
    assert response.status_code == 401
    assert response.headers["HX-Redirect"] == f"/accounts/login/?next={back}"
    assert response.content == b""


@pytest.mark.parametrize(
    ("shown", "back"),
    [
        ("https://bills.example/t/vision-lab/wallets/", "/t/vision-lab/wallets/"),
        ("https://bills.example/operator/close/?month=2026-02", "/operator/close/%3Fmonth%3D2026-02"),
        ("", "/"),
    ],
)
def test_a_form_sent_after_the_session_ended_leads_back_to_the_form(
    shown: str, back: str, house: House
) -> None:
    """The address that it was sent to opens no page: whoever signed in would stand before an empty one."""
    for path in (f"/t/vision-lab/wallets/{house.wallet.pk}/top-up/", "/operator/close/"):
        client = Client()
        response = client.post(path, {"amount": "50.00"}, headers={"Referer": shown} if shown else {})
        assert response.status_code == 302
        assert response.headers["Location"] == f"/accounts/login/?next={back}"
        assert "nothing was done: sign in, then send it again." in client.get("/accounts/login/").text


def test_a_stranger_finds_nothing(house: House) -> None:
    eve = signed_in(house.eve)
    for route in TENANTS:
        assert "<" not in address(route, house), f"say what stands in {route}"
        assert (route, eve.get(address(route, house)).status_code) == (route, 404)
        opened = signed_in(house.ann).get(address(route, house)).status_code
        assert (route, opened) == (route, (ACTS | NOT_YET).get(route, 200))


def test_what_is_not_there_looks_like_what_is_not_yours(house: House) -> None:
    eve = signed_in(house.eve)
    nowhere, anothers = eve.get("/t/no-such-lab/"), eve.get("/t/vision-lab/")
    assert nowhere.status_code == anothers.status_code == 404
    assert without_token(nowhere.content) == without_token(anothers.content)


def without_token(content: bytes) -> bytes:
    """Each answer has a token of its own in the form that signs out."""
    return re.sub(rb'name="csrfmiddlewaretoken" value="\w+"', b"", content)


def test_another_tenants_objects_are_not_found_in_ones_own(house: House) -> None:
    eve = signed_in(house.eve)
    for route in TENANTS:
        names_an_object = (
            route.count("<") > 1 and "<slug:finding>" not in route
        )  # that is a choice of the page
        if names_an_object and route not in ACTS:
            assert (route, eve.get(address(route, house, "speech-lab")).status_code) == (route, 404)


def test_nobody_acts_for_another_tenant_nor_with_its_objects(house: House) -> None:
    for route in ACTS:
        for person, slug in ((house.eve, "vision-lab"), (house.ben, "vision-lab"), (house.op, "vision-lab")):
            if person == house.ben and route in OWN:
                continue
            answered = signed_in(person).post(address(route, house, slug)).status_code
            assert (route, person.email, answered) == (route, person.email, 404)
        if route.count("<") > 1:
            assert (route, signed_in(house.eve).post(address(route, house, "speech-lab")).status_code) == (
                route,
                404,
            )
    house.card.refresh_from_db()
    assert house.card.state == "usable"


def test_only_operators_see_the_operators_pages(house: House) -> None:
    for route in OPERATORS:
        assert (route, signed_in(house.ann).get(address(route, house)).status_code) == (route, 404)
        opened = signed_in(house.op).get(address(route, house)).status_code
        assert (route, opened) == (route, NOT_YET.get(route, 200))


def test_an_operator_may_look_into_any_tenant_but_not_act_for_it(house: House) -> None:
    assert "vision-lab" in page(house.op, "/t/vision-lab/jobs/")
    tenant, _ = entered(user=house.op, slug="vision-lab", action=Action.READ_INVOICES)
    assert tenant == house.vision
    for action in (Action.PAY, Action.MANAGE):
        with pytest.raises(DeniedError):
            entered(user=house.op, slug="vision-lab", action=action)


def test_each_role_may_do_what_it_is_for(house: House) -> None:
    may = {
        person.email.partition("@")[0]: {action.name for action in Action if allowed(person, action)}
        for person in (house.ann, house.carla, house.ben, house.eve)
    }
    assert may == {
        "ann": {"READ", "READ_ALL", "READ_INVOICES", "PAY", "MANAGE"},
        "carla": {"READ", "READ_ALL", "READ_INVOICES", "PAY"},
        "ben": {"READ", "READ_ALL"},
        "eve": set(),
    }


def allowed(person: object, action: Action) -> bool:
    try:
        entered(user=person, slug="vision-lab", action=action)  # type: ignore[arg-type]
    except DeniedError:
        return False
    return True


def test_ben_sees_what_he_used_but_no_invoice(house: House) -> None:
    number = house.invoice.number or ""
    overview = page(house.ben, "/t/vision-lab/?period=2026-03-01")
    assert "$13.00" in overview
    assert number not in overview
    assert "Invoices" not in overview
    for route in TENANTS:
        if "invoices" in route:
            assert signed_in(house.ben).get(address(route, house)).status_code == 404
    assert "/invoices/" not in page(house.ben, f"/t/vision-lab/jobs/{house.record('17')}/")


def test_somebody_who_left_gets_in_no_more(house: House) -> None:
    client = signed_in(house.ann)
    house.ann.memberships.all().delete()
    assert client.get("/t/vision-lab/").status_code == 404
    house.carla.is_active = False
    house.carla.save()
    with pytest.raises(DeniedError):
        entered(user=house.carla, slug="vision-lab", action=Action.READ)


def test_pages_are_read_only_and_kept_by_no_shared_cache(house: House) -> None:
    for route in set(TENANTS) - set(ACTS):
        assert signed_in(house.ann).post(address(route, house)).status_code == 405
        assert "private" in signed_in(house.ann).get(address(route, house)).headers["Cache-Control"]


def test_the_start_leads_where_one_belongs(house: House) -> None:
    assert signed_in(house.ann).get("/").headers["Location"] == "/t/vision-lab/"
    assert signed_in(house.op).get("/").headers["Location"] == "/operator/"
    builders.a_person("ann@vision.example", house.speech)
    assert signed_in(house.ann).get("/").headers["Location"] == "/tenants/"
    both = page(house.ann, "/tenants/")
    assert "Vision Lab" in both
    assert "Speech Lab" in both
    assert "Vision Lab" not in page(house.eve, "/tenants/")


def test_somebody_without_a_tenant_is_told_what_to_do() -> None:
    nobody = builders.a_person("dora@new.example")
    assert signed_in(nobody).get("/").headers["Location"] == "/tenants/"
    assert "You belong to no tenant yet" in page(nobody, "/tenants/")
    assert "dora@new.example" in page(nobody, "/tenants/")


def test_who_is_in_several_tenants_can_switch(house: House) -> None:
    assert "Switch tenant" not in page(house.ann, "/t/vision-lab/")
    builders.a_person("ann@vision.example", house.speech)
    assert 'href="/t/speech-lab/"' in page(house.ann, "/t/vision-lab/")


def test_signing_in_leads_to_the_page_that_was_asked_for() -> None:
    a_house()
    client = Client()
    response = client.post(
        "/accounts/login/?next=/t/vision-lab/jobs/",
        {"login": "ann@vision.example", "password": builders.PASSWORD, "next": "/t/vision-lab/jobs/"},
    )
    assert response.headers["Location"] == "/t/vision-lab/jobs/"
    assert client.get("/t/vision-lab/jobs/").status_code == 200
