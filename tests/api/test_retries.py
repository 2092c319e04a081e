"""A repeated POST: done once, answered as the first time. Cases 28 to 30 of the API."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory

from portal.api import idempotency, problems
from portal.api.answers import as_json
from portal.api.models import IdempotentRequest
from portal.api.problems import ProblemError
from portal.core.tenants.models import Tenant
from tests import builders

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def once(work: Callable[[], HttpResponse], **changed: Any) -> HttpResponse:
    values: dict[str, Any] = {
        "owner": "tenant:1",
        "key": "a",
        "digest": b"first",
        "moment": NOW,
        "work": work,
    }
    return idempotency.answer_once(**(values | changed))


def makes(slug: str) -> Callable[[], HttpResponse]:
    def work() -> HttpResponse:
        builders.a_tenant(slug)
        return as_json({"slug": slug}, status=201)

    return work


def refuses() -> HttpResponse:
    builders.a_tenant("half-done")
    raise problems.refused("already paid")


@pytest.mark.django_db
def test_api_028_the_first_answer_is_sent_again() -> None:
    first, again = once(makes("acme")), once(makes("never"))
    assert (
        (again.status_code, again.content) == (first.status_code, first.content) == (201, b'{"slug":"acme"}')
    )
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [tenant.slug for tenant in Tenant.objects.all()] == ["acme"]


@pytest.mark.django_db
def test_api_028_a_key_is_forgotten_after_48_hours() -> None:
    once(makes("acme"))
    assert once(makes("bolt"), moment=NOW + timedelta(hours=48)).content == b'{"slug":"bolt"}'
    assert idempotency.forget_old(moment=NOW + timedelta(hours=97)) == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "ä", "x" * 256, "a\n"])
def test_api_028_a_key_is_1_to_255_printable_characters(key: str) -> None:
    request = RequestFactory().post("/", headers={"Idempotency-Key": key})
    for required in (True, False):
        with pytest.raises(ProblemError, match="1 to 255 printable characters"):
            idempotency.key_of(request, required=required)
    with pytest.raises(ProblemError, match="This request needs an Idempotency-Key"):
        idempotency.key_of(RequestFactory().post("/"), required=True)
    assert idempotency.key_of(RequestFactory().post("/"), required=False) == ""


@pytest.mark.django_db
def test_api_029_another_request_under_the_same_key_is_refused() -> None:
    once(makes("acme"))
    with pytest.raises(ProblemError) as refusal:
        once(makes("bolt"), digest=b"second")
    assert (refusal.value.status, refusal.value.kind) == (422, "key-reused")
    assert once(makes("bolt"), owner="tenant:2").status_code == 201


@pytest.mark.django_db
def test_api_030_a_refusal_is_stored_and_leaves_nothing_behind() -> None:
    first, again = once(refuses), once(makes("never"))
    assert (first.status_code, again.status_code, again.content) == (409, 409, first.content)
    assert not Tenant.objects.exists()


@pytest.mark.django_db
def test_api_030_a_fault_of_ours_is_not_stored() -> None:
    def fails() -> HttpResponse:
        builders.a_tenant("half-done")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        once(fails)
    assert not Tenant.objects.exists()
    assert not IdempotentRequest.objects.exists()
    assert once(makes("acme")).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_api_029_eight_at_once_do_it_once() -> None:
    start, begun, go_on = Barrier(8), Event(), Event()

    def slow() -> HttpResponse:
        begun.set()
        go_on.wait(10)
        return makes("acme")()

    def sent() -> int:
        start.wait()
        try:
            return once(slow).status_code
        except ProblemError as problem:
            return problem.status * int(problem.headers["Retry-After"])
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(sent) for _ in range(8)]
        begun.wait(10)
        while sum(answer.done() for answer in answers) < 7:
            pass
        go_on.set()
        assert sorted(answer.result() for answer in answers) == [201, *[409] * 7]
    assert Tenant.objects.count() == 1
