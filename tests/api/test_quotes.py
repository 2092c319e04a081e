"""What a job would cost, as a script asks before it submits. Case 38 of the API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import BillingPeriod
from billing.simulation.messages import SENTENCES
from portal.api.resources.quotes import FIELDS
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

JOB: dict[str, Any] = {"hours": "3", "gpus": 2, "gpu_model": "a100", "starts_at": "2026-04-21T10:00:00Z"}


def test_api_038_a_quote_is_the_engines_own_figure(
    house: House, ann: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    quote = ann.writes("/quotes", JOB, status=200)
    assert quote["total"] == [{"amount": "12.00", "currency": "USD"}]
    (line,) = quote["lines"]
    assert (line["resource_seconds"], line["quantity"], line["unit"]) == ("21600", "6", "GPU-hour")
    call_command(
        "quote", "vision-lab", "--cluster", "gpu1", "--gpus", "2", "--gpu-model", "a100",
        "--hours", "3", "--at", "2026-04-21T10:00:00Z", "--json",
    )  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert said["total"] == {"USD": "12.00"}
    assert {*said} - {"tenant", "cluster"} <= {*quote}
    assert not BillingPeriod.objects.filter(start__gt=builders.at("2026-04-20")).exists()


def test_api_038_what_no_price_covers_is_told(ann: Door) -> None:
    quote = ann.writes("/quotes", JOB | {"gpu_model": "h100"}, status=200)
    assert (quote["total"], quote["unpriced"]) == ([], [{"resource": "gpu", "hours": "6"}])


@pytest.mark.parametrize(
    "wrong",
    [
        {"hours": "0"}, {"hours": "9000"}, {"gpus": "1.5"}, {"gpu_share": "7"}, {"cluster": "moon"},
        {"starts_at": "2199-01-01T00:00:00Z"}, {"starts_at": "2026-04-21"}, {"hour": "1"}, {"account": "speech"},
    ],
)  # fmt: skip
def test_api_038_what_cannot_be_quoted_is_a_sentence(ann: Door, wrong: dict[str, str]) -> None:
    assert ann.post("/quotes", JOB | wrong).problem == (400, "invalid-request")


@pytest.mark.parametrize("hours", ["0", "-1", "9000", "x", "1e-1"])
def test_api_038_hours_that_no_job_has_are_refused_by_one_sentence_that_names_the_field(
    ann: Door, hours: str
) -> None:
    detail = f"'{hours}' is no length of a job: write its hours as a number above 0, up to 8,784."
    for path, shape in (("/quotes", JOB), ("/quotas/check", {"gpus": 1})):
        refused = ann.post(path, shape | {"hours": hours})
        assert refused.problem == (400, "invalid-request")
        assert refused.body["detail"] == detail
        assert refused.body["errors"] == [{"pointer": "/hours", "detail": detail}]


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"hours": "0.0001"}, "/hours"), ({"cpus": "-1"}, "/cpus"), ({"memory_gib": "x"}, "/memory_gib"),
        ({"gpu_share": "7"}, "/gpu_share"), ({"cluster": "moon"}, "/cluster"), ({"account": "speech"}, "/account"),
        ({"starts_at": "2199-01-01T00:00:00Z"}, "/starts_at"), ({"starts_at": "1999-01-01T00:00:00Z"}, "/starts_at"),
    ],
)  # fmt: skip
def test_api_038_whatever_cannot_be_quoted_names_its_field(
    ann: Door, wrong: dict[str, str], pointer: str
) -> None:
    refused = ann.post("/quotes", JOB | wrong)
    assert refused.problem == (400, "invalid-request")
    assert refused.body["errors"] == [{"pointer": pointer, "detail": refused.body["detail"]}]


def test_api_038_every_refusal_of_a_quote_has_its_field() -> None:
    codes = {code for code in SENTENCES if not code.startswith("of-")}
    assert codes == {*FIELDS, "no-number", "no-whole-number"}


def test_api_038_an_operators_key_names_the_tenant(house: House, op: Door) -> None:
    assert op.post("/quotes", JOB).problem == (400, "invalid-request")
    assert op.writes("/quotes?tenant=speech-lab", JOB, status=200)["total"][0]["amount"] == "7.50"
    eve = door(house.eve, house.speech)
    assert eve.post("/quotes?tenant=vision-lab", JOB).problem == (404, "not-found")
