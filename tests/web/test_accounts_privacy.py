"""What is kept of people: nothing secret in logs, nothing of theirs in caches, and their own address for limits."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from portal.ops import logs
from tests import builders
from tests.web.house import a_house, signed_in

pytestmark = pytest.mark.django_db

Logged = Callable[[], list[dict[str, Any]]]
KEY = "/accounts/password/reset/key/1-d8kq2m-53c2e7b1/"


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    """What the site writes to standard error, as it is configured in production."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    root.handlers = []
    logs.configure(level="INFO")
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.handlers = before
    root.setLevel(level)


@pytest.mark.parametrize("path", [KEY, KEY.rstrip("/"), f"{KEY}more"])
def test_no_log_holds_the_key_of_a_password_reset(path: str, logged: Logged) -> None:
    Client().get(path)
    lines = logged()
    assert [line["path"] for line in lines if line["event"] == "request"] == [
        "/accounts/password/reset/key/…"
    ]
    assert "d8kq2m" not in json.dumps(lines)


@pytest.mark.parametrize("path", ["/no/such/page", "/admin/?q=%00", "/accounts/password/reset/key/1-secret"])
def test_what_people_search_for_is_in_no_log(path: str, logged: Logged) -> None:
    Client().get(f"{path}{'&' if '?' in path else '?'}user=ada-lovelace")
    lines = logged()
    assert len(lines) >= 1
    assert "ada-lovelace" not in json.dumps(lines)


def test_nul_is_no_part_of_any_address() -> None:
    house = a_house(close=False)
    op = signed_in(house.op)
    assert signed_in(house.ann).get("/t/vision-lab/invoices/%00/").status_code == 404
    assert op.get("/t/vision-lab/invoices/20%0017/csv").status_code == 404
    assert Client().get("/%00").status_code == 404
    query = {"app_label": "tenants", "model_name": "ownership", "field_name": "account", "term": "v\0"}
    assert op.get("/admin/autocomplete/", query).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/t/vision-lab/payment/back/?session=%00",
        "/operator/plan-editor/?plan=vision-deal%00",
        "/operator/plan-editor/?plan=vision-deal&version=%00",
        "/operator/plan-editor/?plan=%%0000",
        "/operator/plans/?x=%00",
        "/operator/close/?month=%00",
        "/operator/reports/?cluster=%00",
        "/t/vision-lab/jobs/?q=%00",
    ],
)
def test_nul_in_what_a_page_is_asked_is_left_out(path: str) -> None:
    assert signed_in(a_house(close=False).op).get(path).status_code < 500


def test_nul_in_a_form_is_left_out() -> None:
    form = {"text": "\0", "plan": "\0", "since": "\0", "until": "\0", "tenants": "\0", "act": "try"}
    op = signed_in(a_house(close=False).op)
    assert op.post("/operator/plan-editor/", form).status_code == 200


def test_what_a_signed_in_person_sees_is_kept_nowhere() -> None:
    house = a_house(close=False)
    ann, op = signed_in(house.ann), signed_in(house.op)
    paths = [
        (ann, "/t/vision-lab/"),
        (ann, "/tenants/"),
        (ann, "/t/no-such-lab/"),
        (op, "/operator/clusters/"),
    ]
    for client, path in paths:
        assert (path, client.get(path).headers["Cache-Control"]) == (path, "private, no-store")
    assert "Cache-Control" not in Client().get("/tenants/").headers
    assert "no-store" in op.get("/admin/").headers["Cache-Control"]  # the admin says it by itself


def test_behind_a_proxy_each_visitor_has_attempts_of_their_own(settings: Any) -> None:
    builders.an_operator()
    settings.ACCOUNT_RATE_LIMITS = {"login": "1/m/ip"}
    wrong = {"login": "op@cluster.example", "password": "wrong"}

    def tries(forwarded: str) -> int:
        headers = {"x-forwarded-for": forwarded}
        return Client().post("/accounts/login/", wrong, headers=headers).status_code

    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 0  # nothing is believed: one address for all
    assert [tries("203.0.113.1"), tries("203.0.113.2")] == [200, 429]
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1  # what the proxy appended, not what the visitor made up
    assert [tries("198.51.100.7, 203.0.113.3"), tries("198.51.100.8, 203.0.113.3")] == [200, 429]
    assert tries("198.51.100.7, 203.0.113.4") == 200
