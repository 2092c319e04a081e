"""What Ben and Ann read of their plan: its prices as they pay them, what is left of it, and what a job would cost."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.catalog.plans import new_version, set_plan, set_price
from billing.models import Commitment, Price, QuotaEvery, QuotaMeasure
from billing.quotas.plan_quotas import set_plan_quota
from billing.quotas.terms import QuotaTerms
from billing.rules.hours import Hours, Window
from billing.rules.meters import PerUnit
from portal.web.own_plan import spans_of
from tests import builders
from tests.builders import LONG_AGO
from tests.quota_stories import look
from tests.sums import tokens
from tests.terms import GRADUATED, TENS, VOLUME, a_version
from tests.web.clock import stand_at
from tests.web.house import a_house, page, signed_in
from tests.web.test_accrued import a_lab, half_of_march
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PLAN = "/t/vision-lab/plan/"


def test_ann_reads_what_is_included_and_how_far_her_tiers_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    version = a_version(GRADUATED, (TENS, {"gpu_model": ["l40s"]}), allowance="10")
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal(50))
    version_terms.set_commitment(version=version, amount=Decimal(900))
    terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(800), every=QuotaEvery.MONTH)
    set_plan_quota(version=version, name="monthly", terms=terms)
    cluster, lab = a_lab(version)
    half_of_march(cluster)  # 152 hours, 10 of them included
    look("2026-03-15 10:00")
    ann = builders.a_person(tenant=lab)
    stand_at(monkeypatch, "2026-03-15 10:00")
    text = words(page(ann, PLAN))
    assert "Plan standard in USD, since 1 Mar 2026, 00:00." in text
    assert "0.00 of 10.00 hours left Included hours" in text
    assert "GPU time Each tier at its own price, after “Included hours”" in text
    assert "up to 100 GPU-hours at $3.00 100.00 of 100.00 GPU-hours used" in text
    assert "up to 500 GPU-hours at $2.50 42.00 of 400.00 GPU-hours used above, at $2.00" in text
    assert "GPU time, l40s packages of 10 GPU-hours at $25.00" in text
    assert "Minimum commitment at least $900.00 Platform fee $50.00" in text
    assert "plan-monthly $800.00, each month, everything: only notify; notices at 50%, 80%, 100%" in text
    current = re.findall(r'<li aria-current="true"><span>([^<]+)', page(ann, PLAN))
    assert current == ["up to 500 GPU-hours at $2.50"]


def test_of_volume_and_packages_ann_reads_where_all_of_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, lab = a_lab(a_version(VOLUME, (TENS, {"gpu_model": ["l40s"]})))
    half_of_march(cluster)
    half_of_march_on_l40s = [
        builders.a_job(gpus=5, gpu_model="l40s", started="2026-03-02 10:00", ended="2026-03-02 15:00")
    ]
    builders.ingest(cluster, *half_of_march_on_l40s, as_of="2026-03-15")
    ann = builders.a_person(tenant=lab)
    stand_at(monkeypatch, "2026-03-15 10:00")
    text = words(page(ann, PLAN))
    assert "GPU time All of it at the price of its tier" in text
    assert "up to 100 GPU-hours at $3.00 up to 500 GPU-hours at $2.50 152.00 of 500.00 GPU-hours used" in text
    assert re.findall(r"<li aria-current[^>]*><span>([^<]+)", page(ann, PLAN)) == [
        "up to 500 GPU-hours at $2.50",
        "3 packages this period; of the last one",
    ]
    assert "3 packages this period; of the last one 5.00 of 10.00 GPU-hours used" in text


def test_ann_reads_her_own_terms_and_none_of_what_speech_agreed() -> None:
    house = a_house(close=False)
    version = Price.objects.get(version__plan__name="vision-deal").version
    house.speech.subscriptions.update(plan=version.plan)
    since = date(2026, 1, 1)
    for tenant, amount in ((house.vision, "1.50"), (house.speech, "1.11")):
        model = PerUnit(Decimal(amount))
        set_price(version=version, meter="gpu-hour", where={}, model=model, tenant=tenant, valid_from=since)
    version_terms.set_commitment(version=version, amount=Decimal(333), tenant=house.speech, valid_from=since)
    nights = Hours((Window((0, 6), 22 * 3600, 6 * 3600),))
    set_price(
        version=version,
        meter="gpu-hour",
        where={},
        hours=nights,
        model=PerUnit(Decimal("0.70")),
        valid_from=LONG_AGO,
    )
    text = words(page(house.ann, PLAN))
    assert "For you alone $1.50 per GPU-hour" in text
    assert "$2.00" not in text  # which her own price stands in the place of
    assert "$0.70" not in text
    assert "1.11" not in text
    assert "333" not in text
    Price.objects.filter(tenant=house.vision).update(valid_until=date(2026, 2, 1))
    html = page(house.ann, PLAN)
    assert "$2.00 per GPU-hour" in words(html)
    assert "Only in these hours, by your clock." in words(html)
    assert '<rect class="ct-bar-fill" x="0" width="360"' in html  # Sunday's night ends on Monday
    assert signed_in(house.eve).get(PLAN).status_code == 404
    assert Commitment.objects.count() == 1


def test_what_is_charged_has_the_names_of_the_invoice() -> None:
    house = a_house(close=False)
    version = Price.objects.get(version__plan__name="vision-deal").version
    assert "Charged: GPU time; all other usage is free." in words(page(house.ann, PLAN))
    tokens()
    charges = ["gpu", "cpu", "llm-tokens"]
    new_version(plan=version.plan, effective_from=date(2026, 6, 1), charges=charges)
    assert "Charged: GPU time, CPU time, LLM tokens; all other usage is free." in words(page(house.ann, PLAN))
    client = signed_in(house.ann)
    client.cookies["django_language"] = "de"
    assert "Berechnet: GPU-Zeit, CPU-Zeit, LLM tokens;" in words(client.get(PLAN).content.decode())


def test_what_begins_later_is_not_told_and_who_has_no_plan_reads_so() -> None:
    house = a_house(close=False)
    plan = set_plan(name="vision-deal", currency="USD")
    later = new_version(plan=plan, effective_from=date(2099, 1, 1), charges=["gpu"])
    set_price(
        version=later,
        meter="gpu-hour",
        where={},
        model=PerUnit(Decimal("9.99")),
        valid_from=later.effective_from,
    )
    assert "9.99" not in page(house.ben, PLAN)
    house.vision.subscriptions.all().delete()
    assert "No plan yet" in page(house.ben, PLAN)


def test_the_calculator_offers_the_models_of_the_plan_and_of_what_ran() -> None:
    house = a_house(close=False)
    version = Price.objects.get(version__plan__name="vision-deal").version
    where = {"gpu_model": ["h100", "b200"]}
    set_price(version=version, meter="gpu-hour", where=where, model=PerUnit(Decimal(4)), valid_from=LONG_AGO)
    for path in (PLAN, "/t/vision-lab/quote/"):
        options = re.search(r'<select[^>]*name="gpu_model">(.*?)</select>', page(house.ben, path))
        assert options
        assert re.findall(r'value="([^"]*)"( selected)?', options[1]) == [
            ("a100", " selected"),
            ("b200", ""),
            ("h100", ""),
        ]


def test_windows_lie_in_the_week_where_the_clock_has_them() -> None:
    nights = Window((4, 6), 22 * 3600, 6 * 3600)
    assert spans_of(Hours((nights,))) == [(0, 360), (4 * 1440 + 1320, 480), (6 * 1440 + 1320, 120)]
    assert spans_of(Hours((Window((0, 1), 0, 86_400),))) == [(0, 1440), (1440, 1440)]
