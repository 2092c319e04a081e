"""How requests and answers read. Cases 1 to 12 and 25 of the API."""

from __future__ import annotations

import gzip
import json
from typing import Any

import psycopg
import pytest
from django.test import Client, override_settings

from billing.invoicing.voids import VoidError
from billing.models import Invoice
from portal.api import identifiers, json_body, limits, parameters, problems
from portal.api.problems import ProblemError
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("GET", "/nowhere", (404, "not-found")),
        ("GET", "/invoices/none/of/these", (404, "not-found")),
        ("DELETE", "/me", (405, "method-not-allowed")),
        ("GET", "/invoices?limit=0", (400, "invalid-request")),
        ("GET", "/invoices/INV-1999-0001", (404, "not-found")),
    ],
)
def test_api_001_every_refusal_is_a_problem(
    ann: Door, method: str, path: str, problem: tuple[int, str]
) -> None:
    answer = ann.send(method, path)
    assert answer.problem == problem
    assert answer.body["instance"] == answer.headers["X-Request-ID"]
    assert {"type", "title", "status", "detail", "instance"} <= {*answer.body}


def test_api_001_a_fault_of_ours_is_a_problem_without_a_trace(
    ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("portal.api.cursors.page", broken)
    answer = ann.get("/invoices")
    assert answer.problem == (500, "internal")
    assert b"secret detail" not in answer.raw


def test_api_002_money_is_a_decimal_string_with_its_currency(ann: Door) -> None:
    (invoice,) = ann.reads("/invoices")["data"]
    assert invoice["total"] == {"amount": "13.00", "currency": "USD"}
    assert ann.reads(f"/invoices/{invoice['id']}/lines")["data"][0]["unit_price"] == "2"


def test_api_003_times_are_utc_and_a_time_without_a_zone_is_refused(ann: Door) -> None:
    (invoice,) = ann.reads("/invoices")["data"]
    assert invoice["period"] == {
        "from": "2026-03-01T00:00:00Z",
        "to": "2026-04-01T00:00:00Z",
        "timezone": "UTC",
    }
    with pytest.raises(ValueError, match="with its zone"):
        parameters.parse_moment("2026-03-01T00:00:00")
    for year in ("0000", "10000", "1969"):
        with pytest.raises(ValueError, match=r"no such time|write a time"):
            parameters.parse_moment(f"{year}-03-01T00:00:00Z")


def test_api_004_ids_are_opaque_and_of_one_kind(house: House, ann: Door) -> None:
    (invoice,) = ann.reads("/invoices")["data"]
    assert invoice["id"] == identifiers.write("inv", house.invoice.pk)
    assert ann.reads(f"/invoices/{invoice['id']}")["number"] == house.invoice.number
    assert ann.get(f"/invoices/{invoice['id'].replace('inv_', 'job_')}").problem == (404, "not-found")
    for key in (0, 1, 7, 2**63 - 1):
        assert identifiers.read("inv", identifiers.write("inv", key)) == key
    for text in ("inv_", "inv_!!!!!!!!!!!!!", "inv_zzzzzzzzzzzzz", "inv_0"):
        with pytest.raises(ProblemError):
            identifiers.read("inv", text)


def test_api_005_a_misspelt_filter_never_returns_everything(ann: Door) -> None:
    refused = ann.get("/invoices?sate=issued")
    assert refused.problem == (400, "invalid-request")
    assert refused.body["errors"][0]["pointer"] == "sate"
    assert "There is no parameter 'sate'; known are:" in refused.body["detail"]
    assert ann.get("/invoices?limit=5&limit=6").problem == (400, "invalid-request")


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1.5}', b"[" * 21 + b"]" * 21,
        b'{"a": "\\u0000"}', b'{"a": "\\ud800"}', b"\xff", b"{", b'{"a": 99999999999999999999}', b"[" * 10_000_000,
    ],
)  # fmt: skip
def test_api_005_ambiguous_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProblemError) as refusal:
        json_body.loads(body)
    assert refusal.value.status in {400, 413}


def test_api_005_brackets_inside_of_texts_do_not_nest() -> None:
    assert json_body.loads(b'{"a": "[[[[[[[[[[[[[[[[[[[[[[[[[ \\" ]"}') == {
        "a": '[[[[[[[[[[[[[[[[[[[[[[[[[ " ]'
    }
    with pytest.raises(ProblemError, match="nested"):
        json_body.loads(b'{"a\\"": ' + b"[" * 20 + b"]" * 20 + b"}")


def test_api_006_a_list_has_data_and_the_cursor_of_what_follows(op: Door) -> None:
    page = op.reads("/invoices?limit=1&count=true")
    assert (len(page["data"]), page["count"], page["next"] is None) == (1, 2, False)
    assert len(op.all("/invoices?limit=1")) == 2
    for limit in ("0", "201", "1e9", "-1", "", "٣"):
        assert op.get(f"/invoices?limit={limit}").problem == (400, "invalid-request")


def test_api_008_a_cursor_is_of_one_list_one_filter_and_one_owner(house: House, op: Door, ann: Door) -> None:
    cursor = op.reads("/invoices?limit=1")["next"]
    assert op.get(f"/invoices?limit=1&cursor={cursor}").status == 200
    assert op.get(f"/invoices?limit=1&cursor={cursor}&kind=invoice").problem == (400, "invalid-request")
    assert op.get(f"/invoices?limit=1&cursor={cursor[:-2]}aa").problem == (400, "invalid-request")
    assert ann.get(f"/invoices?limit=1&cursor={cursor}").problem == (400, "invalid-request")
    assert op.get(f"/invoices/{house.invoice.number}/lines?cursor={cursor}").problem == (
        400,
        "invalid-request",
    )


def test_api_009_filters_narrow_and_repeated_ones_widen(op: Door, house: House) -> None:
    def numbers(query: str) -> list[str]:
        return sorted(row["number"] for row in op.all(f"/invoices{query}"))

    both = sorted(str(number) for number in Invoice.objects.values_list("number", flat=True))
    assert numbers("") == both
    assert numbers("?tenant=vision-lab") == [house.invoice.number]
    assert numbers(f"?number={both[0]}&number={both[1]}") == both
    assert numbers(f"?number={both[0]}&state=void") == []
    assert numbers("?issued_from=2030-01-01") == []


def test_api_011_an_object_has_an_etag(ann: Door, house: House) -> None:
    path = f"/invoices/{house.invoice.number}"
    tag = ann.get(path).headers["ETag"]
    again = ann.get(path, **{"If-None-Match": tag})
    assert (again.status, again.raw) == (304, b"")
    assert ann.get(path, **{"If-None-Match": '"other"'}).status == 200


def test_api_012_answers_are_private_compressed_and_have_heads(op: Door) -> None:
    head = op.send("HEAD", "/invoices")
    assert (head.status, head.raw) == (200, b"")
    assert {"private", "no-store"} <= {*head.headers["Cache-Control"].split(", ")}
    packed = op.get("/invoices", **{"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(packed.raw))["data"]) == 2
    assert "Access-Control-Allow-Origin" not in head.headers


def test_api_025_limits_are_told_and_waiting_as_long_as_told_is_enough(
    house: House, ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ann.get("/me")
    assert first.headers["RateLimit-Policy"] == '"requests";q=600;w=60'
    assert first.headers["RateLimit"].startswith('"requests";r=599;t=')
    monkeypatch.setattr(limits, "REQUESTS", 1)
    refused = ann.get("/me")
    assert refused.problem == (429, "too-many-requests")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60


def test_api_025_writes_count_for_both_limits(ann: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """600 requests, 60 of them writes: whoever has used up the 600 writes no more in that minute."""
    monkeypatch.setattr(limits, "WINDOW", 10_000_000)  # no minute ends on the way
    monkeypatch.setattr(limits, "REQUESTS", 4)
    monkeypatch.setattr(limits, "WRITES", 2)
    writes = [ann.send("DELETE", "/keys/key_0000000000000") for _ in range(3)]
    assert [answer.status for answer in writes] == [404, 404, 429]
    assert [answer.headers["RateLimit"].split(";t=")[0] for answer in writes] == [
        '"writes";r=1', '"writes";r=0', '"writes";r=0'
    ]  # fmt: skip
    reads = [ann.get("/me") for _ in range(2)]
    assert [answer.status for answer in reads] == [200, 429]
    refused = ann.send("DELETE", "/keys/key_0000000000000")
    assert refused.problem == (429, "too-many-requests")
    assert refused.headers["RateLimit"].startswith('"requests";r=0;t=')


def test_api_025_a_write_says_what_is_left_of_the_smaller_limit(
    ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WINDOW", 10_000_000)
    monkeypatch.setattr(limits, "REQUESTS", 2)
    written = ann.send("DELETE", "/keys/key_0000000000000")
    assert written.headers["RateLimit"].startswith('"requests";r=1;t=')


def test_api_025_without_redis_everything_is_served(ann: Door) -> None:
    away = {
        "default": {
            "BACKEND": "portal.core.redis_cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    with override_settings(CACHES=away):
        assert ann.get("/me").status == 200


def test_api_027_a_statement_that_takes_too_long_is_ended(ann: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connection

    def slow(*args: object, **kwargs: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")

    monkeypatch.setattr("portal.api.views.Endpoint.longest_query", "50ms")
    monkeypatch.setattr("portal.api.cursors.page", slow)
    refused = ann.get("/invoices")
    assert refused.problem == (503, "too-slow")
    assert refused.headers["Retry-After"] == "10"


def test_api_027_who_waits_too_long_for_what_another_changes_is_told_to_ask_again(
    ann: Door, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    from django.db import connection

    def waits(*args: object, **kwargs: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'; SELECT pg_advisory_xact_lock(4711)")

    monkeypatch.setattr("portal.api.cursors.page", waits)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(4711)")
        refused = ann.get("/invoices")
    assert refused.problem == (503, "busy")
    assert "Nothing was changed for you" in refused.body["detail"]
    assert refused.headers["Retry-After"] == "5"


def test_api_063_it_can_be_turned_off(ann: Door) -> None:
    with override_settings(CLUSTERTAB_API=False):
        assert ann.get("/me").problem == (404, "not-found")


def test_api_039_me_says_which_key_it_is(house: House, ann: Door) -> None:
    me: Any = ann.reads("/me")
    assert (me["name"], me["tenant"], me["prefix"]) == ("script", "vision-lab", ann.secret[8:16])
    assert "invoices:read" in me["scopes"]
    ben = door(house.ben, house.vision)
    assert ben.reads("/me")["scopes"] == ["jobs:read", "quotas:read", "usage:read"]


def test_api_039_status_says_how_old_the_data_is(house: House, ann: Door, op: Door) -> None:
    watermarks = [{"cluster": "gpu1", "complete_through": "2026-04-20T00:00:00Z"}]
    assert ann.reads("/status")["data"] == watermarks
    assert op.reads("/status")["data"] == watermarks
    assert op.reads("/status?tenant=vision-lab")["data"] == watermarks
    assert op.get("/status?tenant=nobody").problem == (404, "not-found")


def test_api_036_the_files_of_an_invoice_are_those_of_the_portal(house: House, ann: Door) -> None:
    from tests.web.house import signed_in

    number = house.invoice.number
    waiting = ann.get(f"/invoices/{number}/pdf")
    assert waiting.problem == (409, "not-ready")
    assert waiting.headers["Retry-After"] == "5"
    portal = signed_in(house.ann).get(f"/t/vision-lab/invoices/{number}/csv")
    assert ann.get(f"/invoices/{number}/jobs.csv").raw == b"".join(portal.streaming_content)  # type: ignore[attr-defined]
    assert isinstance(Client(), Client)


@pytest.mark.parametrize("method", ["SETUP", "DISPATCH", "ONE", "PAGE", "TRACE"])
def test_api_001_a_word_that_is_no_method_does_nothing(ann: Door, method: str) -> None:
    assert ann.send(method, "/me").problem == (405, "method-not-allowed")


def test_api_012_options_say_which_methods_there_are(ann: Door) -> None:
    answer = ann.send("OPTIONS", "/invoices")
    assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")


def test_api_061_too_many_parameters_are_no_fault_of_ours(ann: Door) -> None:
    assert ann.get("/me?" + "&".join(f"a{number}=" for number in range(1001))).problem == (
        400,
        "invalid-request",
    )


def test_a_refusal_has_its_reason_as_a_code_and_as_a_sentence() -> None:
    refusal = problems.refused(VoidError("already-void", invoice="INV-2026-0001"))
    body = json.loads(problems.as_response(refusal).content)
    assert (body["status"], body["type"]) == (409, "urn:clustertab:problem:refused")
    assert (body["code"], body["detail"]) == ("already-void", "INV-2026-0001 is void already.")
    assert "code" not in json.loads(problems.as_response(problems.not_found()).content)
