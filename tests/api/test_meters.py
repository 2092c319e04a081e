"""Declaring meters and pushing sums of them by the API. Cases 40, 42 and 44 to 50."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from billing.models import PeriodTotal, RatedJob
from billing.rules.meters import CustomMeter
from clusters.models import DeclaredMeter, UsageRecord
from portal.api.answers import as_json
from portal.config_file.apply import apply
from portal.config_file.schema import ConfigError, parse
from portal.core.tenants.models import Tenant
from portal.env import ROOT
from tests.api.door import Door, door
from tests.stories import close, prove
from tests.sums import a_gateway, a_sum, a_user_of_tokens, lines_of, tokens
from tests.web.house import House

PUSH = "/usage-events?cluster=gateway"
BATCH = {"Content-Type": "application/cloudevents-batch+json"}
TOKENS = {
    "title": "LLM tokens",
    "unit": "million tokens",
    "counted": "tokens",
    "per_unit": 1_000_000,
    "dimensions": ["model", "direction"],
}
GUIDE = (ROOT / "docs" / "how-to/push-usage.md").read_text()

pytestmark = pytest.mark.django_db


@pytest.fixture
def op(house: House) -> Door:
    return door(house.op, None)


@pytest.fixture
def ai(house: House) -> Tenant:
    """A tenant on a plan that charges tokens."""
    house.vision.slug, house.vision.name = "other", "Other"
    house.vision.save()
    return a_user_of_tokens(a_gateway())


def statuses(op: Door, *events: dict[str, Any]) -> list[str]:
    answer = op.send("POST", PUSH, list(events), **BATCH)
    assert answer.status in {200, 400}, answer.raw[:500]
    return [result["status"] for result in answer.body["results"]]


def declared() -> dict[str, Any]:
    columns = ("name", *TOKENS, "decimals", "unit_code")
    return dict(zip(columns, DeclaredMeter.objects.values_list(*columns).get(), strict=True))


def test_api_042_a_file_a_command_the_api_and_the_admin_declare_the_same(house: House, op: Door) -> None:
    op.send("PUT", "/meters/llm-tokens", TOKENS)
    by_api = declared()
    DeclaredMeter.objects.all().delete()
    apply(file=parse(_toml(GUIDE).split("[[cluster]]")[0]))
    assert declared() == by_api
    DeclaredMeter.objects.all().delete()
    options = (
        "--title",
        "LLM tokens",
        "--unit",
        "million tokens",
        "--counted",
        "tokens",
        "--per-unit",
        "1000000",
    )
    call_command("declare_meter", "llm-tokens", *options, "--dimension", "model", "--dimension", "direction")
    assert declared() == by_api
    DeclaredMeter.objects.all().delete()
    client = Client()
    client.force_login(house.op)
    form = TOKENS | {"name": "llm-tokens", "dimensions": "model,direction", "decimals": 0, "unit_code": "C62"}
    client.post("/admin/clusters/declaredmeter/add/", form)
    assert declared() == by_api


def test_api_042_they_refuse_the_same(op: Door, capsys: pytest.CaptureFixture[str]) -> None:
    by_api = op.send("PUT", "/meters/gpu", TOKENS)
    assert by_api.problem == (409, "refused"), by_api.raw
    sentence = "gpu is what runs hold, and is metered already: declare the meter by another name."
    assert by_api.body["detail"] == sentence
    with pytest.raises(CommandError, match=re.escape(sentence)):
        call_command("declare_meter", "gpu", "--title", "GPU", "--unit", "GPU-hour")
    with pytest.raises(ConfigError) as refusal:
        apply(file=parse('[[meter]]\nname = "gpu"\ntitle = "GPU"\nunit = "hour"'))
    assert refusal.value.sentences == (f'meter "gpu": {sentence}',)


def test_api_040_a_meter_is_put_on_its_name_and_read_back(op: Door) -> None:
    put = op.send("PUT", "/meters/llm-tokens", TOKENS)
    assert put.status == 200, put.raw
    assert op.reads("/meters/llm-tokens") == put.body == op.reads("/meters")["data"][0]
    assert put.body["first_used_at"] is None
    assert op.send("PUT", "/meters/llm-tokens", put.body).body == put.body
    assert op.send("PUT", "/meters/llm-tokens", TOKENS | {"name": "other"}).status == 400
    assert op.send("PUT", "/meters/llm-tokens", TOKENS | {"per_unit": "a"}).status == 400
    assert op.send("PUT", "/meters/llm-tokens", TOKENS, **{"If-Match": '"x"'}).status == 412
    assert op.send("DELETE", "/meters/llm-tokens").status == 204
    assert op.send("DELETE", "/meters/llm-tokens").status == 404


def test_what_the_file_says_twice_changes_nothing(house: House) -> None:
    text = _toml(GUIDE).replace("vision-lab", "ai-lab").replace("Vision Lab", "AI Lab")
    changes = [str(change) for change in apply(file=parse(text)).changes]
    assert any(
        change.startswith("meter llm-tokens: new (title LLM tokens, unit million tokens")
        for change in changes
    )
    assert apply(file=parse(text)).changes == []
    prove()


def test_the_guide_bills_what_it_says(house: House, op: Door) -> None:
    """docs/how-to/push-usage.md, from the file to the invoice's line."""
    apply(file=parse(_toml(GUIDE).replace("vision-lab", "ai-lab").replace("Vision Lab", "AI Lab")))
    (events,) = re.findall(r"^```json\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    answer = op.send("POST", PUSH, json.loads(events), **BATCH)
    assert [result["status"] for result in answer.body["results"]] == ["accepted", "accepted"]
    assert answer.body["warnings"] == {"unassigned": {}, "unpriced": {}, "waived": {}}
    tenant = Tenant.objects.get(slug="ai-lab")
    close("2026-03", tenant)
    ((description, quantity, unit, amount),) = lines_of(tenant)
    said = "The invoice for March has the line *LLM tokens, input*: 12.5 million tokens × $0.60 = $7.50."
    assert said in GUIDE
    assert (description, quantity, unit, amount) == (
        "LLM tokens, input",
        Fraction(25, 2),
        "million tokens",
        750,
    )
    prove()


def test_api_046_in_any_order_and_again_the_same_invoice(ai: Tenant, op: Door) -> None:
    events = [a_sum(str(number), 1000 * number, f"2026-03-02T{number:02}") for number in range(1, 20)]
    events += [a_sum("3", 7_000_000, time="2026-04-01T05:00:00Z"), a_sum("4", 0, time="2026-04-01T06:00:00Z")]
    for seed in range(3):
        mine = list(events)
        Random(seed).shuffle(mine)
        for start in range(0, len(mine), 5):
            statuses(op, *mine[start : start + 5])
    assert UsageRecord.objects.filter(cluster__name="gateway").count() == 19
    close("2026-03", ai)
    ((_, quantity, _, _),) = lines_of(ai)
    assert quantity == Fraction(sum(1000 * number for number in range(1, 20)) - 7000 + 7_000_000, 1_000_000)
    prove()


def test_api_044_a_number_with_a_point_is_refused(ai: Tenant, op: Door) -> None:
    assert op.send("POST", PUSH, [a_sum("1", 1.5)], **BATCH).status == 400  # type: ignore[arg-type]
    assert not PeriodTotal.objects.filter(resource="llm-tokens").exists()


def test_api_034_usage_is_told_by_meter_and_dimensions(ai: Tenant, op: Door) -> None:
    output = {"model": "small", "direction": "output"}
    statuses(op, a_sum("1", 12_500_000), a_sum("2", 1_000_000, "2026-03-02T11", dimensions=output))
    path = "/usage?tenant=vision-lab&from=2026-03-01&to=2026-04-01&interval=month&group_by=meter,dimensions"
    (bucket,) = op.reads(path)["buckets"]
    assert [
        (group["group"]["dimensions"], group["used"]["quantities"], group["used"]["cost"][0]["amount"])
        for group in bucket["groups"]
    ] == [
        (
            "direction=input, model=large",
            [{"meter": "llm-tokens", "quantity": "12.5", "unit": "million tokens"}],
            "7.5",
        ),
        (
            "direction=output, model=small",
            [{"meter": "llm-tokens", "quantity": "1", "unit": "million tokens"}],
            "2.4",
        ),
    ]
    assert bucket["used"]["quantities"] == [
        {"meter": "llm-tokens", "quantity": "13.5", "unit": "million tokens"}
    ]
    (bucket,) = op.reads(path.replace("meter,dimensions", "gpu_model") + "&meter=llm-tokens")["buckets"]
    assert [group["group"] for group in bucket["groups"]] == [{"gpu_model": ""}]
    refused = op.get(f"{path}&meter=llm-token")
    assert refused.body["detail"].endswith(", billing-hour, llm-tokens.")


def test_sums_are_no_jobs(ai: Tenant, op: Door) -> None:
    statuses(op, a_sum("1", 12_500_000))
    assert RatedJob.objects.filter(tenant=ai).count() == 1
    assert op.reads("/jobs?tenant=vision-lab")["data"] == []


def test_one_that_is_used_is_refused_another_unit(ai: Tenant, op: Door) -> None:
    statuses(op, a_sum("1", 1))
    assert op.reads("/meters/llm-tokens")["first_used_at"] is not None
    assert op.send("PUT", "/meters/llm-tokens", TOKENS | {"per_unit": 1000}).problem == (409, "refused")
    assert tokens(dimensions=["model", "direction", "region"]).dimensions == ["direction", "model", "region"]


def _toml(page: str) -> str:
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return str(example)


def test_an_answer_has_the_name_of_a_declared_meter_as_text() -> None:
    meter = CustomMeter("tokens", unit="million tokens", label="Tokens")
    assert (
        as_json({"meter": meter, "title": "Größe"}).content == '{"meter":"tokens","title":"Größe"}'.encode()
    )
