"""Setting quotas: what cannot be meant, who may set what, files and commands."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import Quota, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError, QuotaTerms
from billing.rules.errors import RuleError
from clusters.models import Cluster
from portal.config_file import apply, schema
from portal.config_file.toml_table import ConfigError
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Role, Tenant
from portal.ops.cli import BadInputError, RefusedError
from tests import builders

pytestmark = pytest.mark.django_db
MOMENT = builders.at("2026-03-10 12:00")


@pytest.fixture
def vision() -> Tenant:
    cluster = builders.a_cluster(complete_through="2026-03-10")
    tenant = builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    builders.ingest(cluster, builders.a_job(gpus=100))
    return tenant


def put(tenant: Tenant, name: str = "monthly", *, by: Setter = Setter.OPERATOR, **said: Any) -> Quota:
    terms: dict[str, Any] = {
        "measure": QuotaMeasure.MONEY,
        "amount": Decimal(1000),
        "every": QuotaEvery.MONTH,
    } | said
    return quotas.set_quota(tenant=tenant, name=name, terms=QuotaTerms(**terms), by=by, moment=MOMENT)


def command(*words: str) -> Any:
    out = io.StringIO()
    call_command(*words, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"amount": Decimal(-1)}, "from 0 to"),
        ({"amount": Decimal("10.001")}, "at most 2 decimals"),
        ({"amount": Decimal(10) ** 15}, "from 0 to"),
        ({"unit": "EUR"}, "is not the currency of"),
        ({"unit": "TOK"}, "Tokens are no money"),
        ({"unit": "XXX"}, "is not a currency"),
        ({"thresholds": ("0%",)}, "above zero"),
        ({"thresholds": ("101%",)}, "more than the whole amount"),
        ({"thresholds": ("80%", "80.0%")}, "stands twice"),
        ({"thresholds": tuple(f"{n}%" for n in range(1, 22))}, "at most 20"),
        ({"thresholds": ("soon",)}, "is no threshold"),
        ({"every": QuotaEvery.ROLLING, "hours": 0}, "from 1 to"),
        ({"every": QuotaEvery.ROLLING, "hours": 24 * 3700}, "from 1 to"),
        ({"every": QuotaEvery.ROLLING, "hours": 24, "forecasts": ("100%",)}, "no end"),
        ({"hours": 5}, "Only a rolling window"),
        ({"every": QuotaEvery.TERM}, "a first day and an end"),
        ({"first_day": date(2026, 1, 1)}, "Only a fixed term"),
        ({"cap": Decimal(500)}, "above the cap"),
        ({"repeat_every": Decimal(0)}, "above zero"),
        ({"credits": QuotaCredits.NET, "user": "ben"}, "whole tenant"),
        ({"credits": QuotaCredits.PAID, "measure": QuotaMeasure.GPU_HOURS}, "whole tenant"),
        ({"with_paid": True, "cluster": "gpu1"}, "leave the scope empty"),
        ({"recipients": ("eve@speech.example",)}, "is no member"),
        ({"measure": QuotaMeasure.GPU_HOURS, "unit": "USD"}, "have no unit"),
        ({"user": "b" * 256}, "at most 255"),
        ({"account": "no-such"}, "Vision has no account .no-such.: have the operator assign it first"),
        ({"account": "speech"}, "Vision has no account .speech."),
        ({"cluster": "nope"}, "Vision has no account on a cluster .nope."),
        ({"account": "vision", "cluster": "nope"}, "is on another cluster, or of another project"),
    ],
)
def test_quota_057_what_cannot_be_meant_is_refused(vision: Tenant, said: Any, sentence: str) -> None:
    with pytest.raises((QuotaError, RuleError), match=sentence):
        put(vision, **said)
    assert not Quota.objects.exists()


def test_quota_057_an_account_is_of_its_project_and_may_come_or_have_gone(vision: Tenant) -> None:
    cluster = Cluster.objects.get()
    builders.own(vision, cluster, "llm-eval", project="LLM", since="2026-04-01")
    builders.own(vision, cluster, "old", project="Speech", until="2026-02-01")
    projects = {row.name: row for row in vision.projects.all()}
    with pytest.raises(
        QuotaError, match=r"The account .llm-eval. of Vision is on another cluster, or of another"
    ):
        put(vision, project=projects["Speech"], account="llm-eval")
    put(vision, "coming", project=projects["LLM"], account="llm-eval", cluster="gpu1")
    put(vision, "gone", account="old")


@pytest.mark.parametrize("name", ["", "Monthly", "a b", "ü", "x" * 51])
def test_quota_057_a_name_stands_in_addresses(vision: Tenant, name: str) -> None:
    with pytest.raises(QuotaError, match="Name a quota"):
        put(vision, name)


def test_quota_006_children_may_exceed_their_parent_together_and_none_alone(vision: Tenant) -> None:
    put(vision)
    for user in ("ann", "ben", "cleo"):
        put(vision, user, user=user, amount=Decimal(500))
    with pytest.raises(QuotaError, match=r"1200 is more than the 1000 of monthly"):
        put(vision, "dan", user="dan", amount=Decimal(1200))
    put(
        vision, "hours", user="dan", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(1200)
    )  # counted otherwise


def test_quota_023_a_quota_of_nothing_is_one(vision: Tenant) -> None:
    put(vision, amount=Decimal(0))
    assert command("show_quotas")["quotas"][0]["percent"] is None


def test_quota_058_owners_stay_below_the_cap_that_operators_set(vision: Tenant) -> None:
    put(vision, cap=Decimal(2000))
    put(vision, by=Setter.OWNER, amount=Decimal(600))
    put(vision, by=Setter.OWNER, amount=Decimal(2000))
    with pytest.raises(QuotaError, match="up to 2000"):
        put(vision, by=Setter.OWNER, amount=Decimal(2001))
    with pytest.raises(QuotaError, match="Only operators"):
        put(vision, by=Setter.OWNER, cap=Decimal(9000))
    with pytest.raises(QuotaError, match="not end it"):
        put(vision, by=Setter.OWNER, user="nobody")
    with pytest.raises(QuotaError, match="not end it"):
        quotas.end_quota(tenant=vision, name="monthly", by=Setter.OWNER, moment=MOMENT)
    row = Quota.objects.get()
    assert (row.amount, row.cap) == (Decimal(2000), Decimal(2000))
    assert quotas.end_quota(tenant=vision, name="monthly", by=Setter.OPERATOR, moment=MOMENT)
    assert not quotas.end_quota(tenant=vision, name="monthly", by=Setter.OPERATOR, moment=MOMENT)


def test_quota_058_each_change_is_in_the_history(vision: Tenant) -> None:
    command("set_quota", "vision", "monthly", "--amount", "1000", "--why", "asked by Ann")
    command("set_quota", "vision", "monthly", "--amount", "1500", "--why", "more of it")
    command("set_quota", "vision", "monthly", "--amount", "1500")  # nothing changes
    made, raised = AuditEntry.objects.filter(table="billing_quota").order_by("pk")
    assert (made.operation, made.why, made.who) == ("insert", "asked by Ann", "set_quota")
    before, after = raised.before or {}, raised.after or {}
    assert (before["amount"], after["amount"], raised.why) == (1000, 1500, "more of it")


def test_quota_058_a_member_can_be_named_and_is_named_once(vision: Tenant) -> None:
    builders.a_person("ben@vision.example", vision, Role.MEMBER)
    row = put(vision, recipients=("Ben@vision.example", "ben@vision.example"))
    assert row.recipients == ["ben@vision.example"]


TEXT = """
[[tenant]]
slug = "vision"
[[tenant.quota]]
name = "monthly"
measure = "money"
amount = "500.00"
every = "month"
thresholds = ["50%", "400.00", "100%"]
forecast_thresholds = ["100%"]
repeat_every = "250.00"
[[tenant.quota]]
name = "window"
measure = "gpu-hours"
amount = 168
every = "rolling"
hours = 168
user = "ben"
"""


def test_a_file_sets_quotas_and_again_nothing_changes(vision: Tenant) -> None:
    changes = [str(change) for change in apply.apply(file=schema.parse(TEXT), moment=MOMENT).changes]
    assert changes == [
        (
            "quota monthly of vision: new (measure money USD, amount 500, every month, thresholds 50%, 100%, 400, "
            "forecast_thresholds 100%, repeat_every 250)"
        ),
        (
            "quota window of vision: new (measure gpu-hours, amount 168, every 168 hours, rolling, user ben, "
            "thresholds 50%, 80%, 100%)"
        ),
    ]
    assert apply.apply(file=schema.parse(TEXT), moment=MOMENT).changes == []
    raised = apply.apply(file=schema.parse(TEXT.replace("500.00", "600.00")), moment=MOMENT)
    assert [str(change) for change in raised.changes] == ["quota monthly of vision: amount 500 -> 600"]


def test_a_file_says_what_is_wrong_with_a_quota(vision: Tenant) -> None:
    with pytest.raises(ConfigError) as refusal:
        apply.apply(
            file=schema.parse(
                TEXT.replace('"money"', '"credits"').replace("168\n", "168\nproject = 'x'\n", 1)
            )
        )
    assert "has no project 'x'" in str(refusal.value)
    assert not Quota.objects.exists()


def test_commands_say_how_a_quota_stands(vision: Tenant) -> None:
    command("set_quota", "vision", "term", "--amount", "150", "--every", "term", "--from", "2026-03-01",
            "--until", "2026-04-01", "--threshold", "80%")  # fmt: skip
    out = io.StringIO()
    with pytest.raises(SystemExit) as code:
        call_command("check_quota", "vision", "term", stdout=out)
    assert code.value.code == 1
    assert out.getvalue().splitlines()[:2] == [
        "vision/term: $200.00 of $150.00 used 2026-03-01 to 2026-03-31 (everything), over",
        "Left: -$50.00.",
    ]
    assert [row["used"] for row in command("show_quotas", "--tenant", "vision")["quotas"]] == ["200.00"]
    assert command("show_quotas", "--state", "ok")["quotas"] == []
    assert command("set_quota", "vision", "term", "--end")["ended"] is True
    with pytest.raises(BadInputError, match="known: none yet"):
        command("check_quota", "vision", "term")
    with pytest.raises(BadInputError, match="--amount"):
        command("set_quota", "vision", "term")
    with pytest.raises(RefusedError, match="finer"):
        command("set_quota", "vision", "term", "--amount", "1.001")
