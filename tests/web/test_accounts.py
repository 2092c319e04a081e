"""Ways in: an address is given by the operator, a password is the person's own, and there is one sign-in page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib import admin
from django.core import mail
from django.core.cache import cache
from django.test import Client

from portal.core.tenants.models import User
from tests import builders
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db

ANN = "ann@vision.example"
NEW = "a much longer secret"


def signs_in(email: str, password: str = builders.PASSWORD) -> bool:
    client = Client()
    client.post("/accounts/login/", {"login": email, "password": password})
    return "_auth_user_id" in client.session


@pytest.mark.parametrize("path", ["email/", "signup/", "login/code/confirm/", "2fa/webauthn/signup/"])
def test_nobody_signs_up_or_manages_addresses(path: str) -> None:
    ann = signed_in(builders.a_person(ANN))
    for client in (Client(), ann):
        assert client.get(f"/accounts/{path}").status_code == 404
        assert client.post(f"/accounts/{path}", {"email": "boss@vision.example"}).status_code == 404


def test_a_member_cannot_take_the_address_of_somebody_else() -> None:
    person = builders.a_person(ANN)
    ann = signed_in(person)
    ann.post("/accounts/email/", {"action_add": "", "email": "boss@vision.example"})
    ann.post("/accounts/email/", {"action_primary": "", "email": "boss@vision.example"})
    assert list(User.objects.values_list("email", flat=True)) == [ANN]
    assert not EmailAddress.objects.filter(email="boss@vision.example").exists()
    admin.autodiscover()
    assert EmailAddress not in admin.site._registry


def test_an_address_that_the_operator_took_away_opens_nothing() -> None:
    person = builders.a_person(ANN)
    EmailAddress.objects.create(user=person, email=ANN, verified=True, primary=True)
    op = signed_in(User.objects.create_superuser("op@cluster.example", builders.PASSWORD))
    form = {"email": "ann@new.example", "first_name": "", "last_name": "", "is_active": "on"}
    assert op.post(f"/admin/tenants/user/{person.pk}/change/", form).status_code == 302
    assert signs_in("ann@new.example")
    assert not signs_in(ANN)


def test_people_sign_in_and_change_their_password() -> None:
    builders.a_person(ANN)
    ann = Client()
    assert ann.get("/accounts/login/").status_code == 200
    answer = ann.post("/accounts/login/", {"login": ANN, "password": builders.PASSWORD})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    changed = {"oldpassword": builders.PASSWORD, "password1": NEW, "password2": NEW}
    assert ann.get("/accounts/password/change/").status_code == 200
    assert ann.post("/accounts/password/change/", changed).status_code == 302
    assert signs_in(ANN, NEW)
    assert not signs_in(ANN)
    assert ann.post("/accounts/logout/").status_code == 302
    assert "_auth_user_id" not in ann.session


def test_whoever_has_no_password_yet_sets_one_from_the_sign_in_page() -> None:
    User.objects.create_user(ANN)
    ann = Client()
    assert ann.get("/accounts/password/reset/").status_code == 200
    answer = ann.post("/accounts/password/reset/", {"email": ANN})
    assert answer.headers["Location"] == "/accounts/password/reset/done/"
    assert ann.get("/accounts/password/reset/done/").status_code == 200
    (message,) = mail.outbox
    assert message.subject == "ClusterTab: Set your password"
    assert "example.com" not in message.body
    (path,) = re.findall(r"http://testserver(/accounts/password/reset/key/\S+)", str(message.body))
    form = ann.get(path, follow=True)
    ann.post(form.redirect_chain[-1][0], {"password1": NEW, "password2": NEW}, follow=True)
    assert signs_in(ANN, NEW)
    assert Client().get("/accounts/password/reset/key/done/").status_code == 200


def test_an_address_that_nobody_has_is_told_whom_to_ask() -> None:
    answer = Client().post("/accounts/password/reset/", {"email": "eve@nowhere.example"})
    assert answer.headers["Location"] == "/accounts/password/reset/done/"
    (message,) = mail.outbox
    assert message.subject == "ClusterTab: No account with this address"
    assert "Your operator adds people to a tenant: ask there." in message.body
    assert "http" not in message.body
    assert "sign up" not in message.body.lower()


def test_there_is_one_sign_in_page() -> None:
    builders.an_operator()
    answer = Client().post("/admin/login/", {"username": "op@cluster.example", "password": builders.PASSWORD})
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/accounts/login/?next=")
    response = Client().get("/admin/", follow=True)
    assert response.redirect_chain[-1][0].startswith("/accounts/login/?next=%2Fadmin%2F")
    assert signed_in(builders.a_person(ANN)).get("/admin/", follow=True).status_code == 403


def test_a_sign_in_page_that_is_tried_too_often_stops_answering(settings: Any) -> None:
    builders.an_operator()
    settings.ACCOUNT_RATE_LIMITS = {"login": "2/m/ip"}
    client, wrong = Client(), {"login": "op@cluster.example", "password": "wrong"}
    statuses = [client.post("/accounts/login/", wrong).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_a_password_that_is_tried_too_often_gets_a_page_in_the_readers_language_with_a_way_on() -> None:
    cache.clear()
    ann, wrong = (
        signed_in(builders.a_person(ANN)),
        {"oldpassword": "wrong", "password1": NEW, "password2": NEW},
    )
    german = {"Accept-Language": "de"}
    for _ in range(5):
        assert ann.post("/accounts/password/change/", wrong, headers=german).status_code == 200
    answer = ann.post("/accounts/password/change/", wrong, headers=german)
    assert answer.status_code == 429
    assert '<html lang="de">' in answer.text
    assert "Zu viele Versuche" in answer.text
    assert 'href="/">Zurück zum Anfang' in answer.text
