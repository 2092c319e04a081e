"""Op reads what plans hold when, writes a version with its curve and bills in view, and publishes it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from django.test import Client

from billing.models import Plan, PlanVersion, Price
from portal.config_file.drafts import one_plan
from portal.config_file.export import plan_text
from portal.config_file.schema import parse
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from tests import builders, sharing, stories
from tests.scenarios.test_simulate_plan import STANDARD
from tests.terms import VOLUME, a_version
from tests.web.house import House, a_house, page, signed_in
from tests.web.previewing import computed
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

DRAFT = """[[plan]]
name = "vision-deal"
currency = "USD"
charges = ["gpu"]
from = 2030-01-01

[[plan.price]]
meter = "gpu-hour"
model = "volume"
tiers = [{ up_to = 100, unit_price = "3.00" }, { unit_price = "2.50" }]
"""


begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture
def op(house: House) -> Client:
    return signed_in(house.op)


def sent(op: Client, text: str = DRAFT, act: str = "preview", **more: str) -> str:
    """What is published was looked at before."""
    form = {"text": text, "act": act, **more}
    if act == "publish":
        form["checked"] = checked(posted(op, form | {"act": "preview"}))
    return words(posted(op, form))


def posted(op: Client, form: dict[str, str]) -> str:
    answer = computed(op, op.post("/operator/plan-editor/", form))
    assert answer.status_code == 200
    return answer.content.decode()


def checked(html: str) -> str:
    """What a preview says of the draft that it showed."""
    match = re.search(r'name="checked" value="([0-9a-f]{64})"', html)
    return match[1] if match else ""


def test_plans_are_listed_with_what_holds_and_who_is_on_them(house: House) -> None:
    a_version(VOLUME, name="nobodys")
    text = words(page(house.op, "/operator/plans/"))
    assert "vision-deal Active USD the period’s invoice 1 Jan 2017 1 version 1" in text
    assert "nobodys No subscribers" in text


def test_a_plan_without_a_version_is_shown_and_can_be_deleted(house: House, op: Client) -> None:
    Plan.objects.create(name="empty", currency="USD", settles="invoice")  # as the administration adds one
    assert "empty No subscribers USD the period’s invoice – 0 versions 0" in words(
        page(house.op, "/operator/plans/")
    )
    assert "No versions yet, so this plan has no prices." in words(page(house.op, "/operator/plans/empty/"))
    page(house.op, "/operator/plan-editor/?plan=empty")
    assert "Plan empty deleted." in words(posted_to(op, "/operator/plans/empty/", act="delete"))
    assert not Plan.objects.filter(name="empty").exists()


def posted_to(op: Client, path: str, **form: str) -> str:
    return op.post(path, form, follow=True).content.decode()


def test_a_plan_that_the_wallet_pays_first_is_one_of_invoices(house: House) -> None:
    builders.a_plan("prepaid", settles="wallet")
    builders.a_plan("topped-up", settles="wallet-first")
    text = words(page(house.op, "/operator/plans/"))
    assert "prepaid No subscribers USD wallets" in text
    assert "topped-up No subscribers USD the wallet first, then the period’s invoice" in text
    text = words(page(house.op, "/operator/plans/topped-up/"))
    assert "In USD, paid by the wallet first, then the period’s invoice." in text


def test_case_031_the_cliff_of_a_volume_price_is_shown(house: House) -> None:
    a_version(VOLUME, name="bulk")
    text = words(page(house.op, "/operator/plans/bulk/"))
    assert "Cliff Above 100 GPU-hours the total drops: $300.00 at 100, $250.00 just above." in text
    assert "Cliff Above 500 GPU-hours the total drops: $1,250.00 at 500, $1,000.00 just above." in text
    assert "GPU-hours Total Average price 0 $0.00 – 100 $300.00 $3.00 just above 100 $250.00 $2.50" in text


def test_a_draft_shows_its_curve_and_what_real_tenants_would_have_paid(op: Client) -> None:
    text = sent(op)
    assert "Above 100 GPU-hours the total drops: $300.00 at 100, $250.00 just above." in text
    assert "Effect on January 2026 to March 2026 +$6.50, +50 %" in text
    assert (
        "$19.50 before tax instead of $13.00. Most for vision-lab." in text
    )  # 6.5 hours at 3.00, and at 2.00
    assert "Changes to the version of 1 Jan 2017" in text
    assert "GPU time, a100 Removed $2.00 per GPU-hour –" in text
    assert "Publish from 1 Jan 2030" in text
    assert Plan.objects.filter(name__startswith="trial").count() == 0
    assert PlanVersion.objects.filter(plan__name="vision-deal").count() == 1


def test_a_draft_is_tried_on_months_and_tenants(op: Client) -> None:
    text = sent(op, act="try", since="2026-03", until="2026-04", tenants="speech-lab, vision-lab")
    assert "Effect on March 2026 to April 2026 +$8.25, +57.9 %" in text
    assert "$22.50 before tax instead of $14.25." in text
    assert "speech-lab" in text
    assert "There is no tenant 'nobody'." in sent(op, act="try", since="2026-03", tenants="nobody")
    assert "the earlier one first" in sent(op, act="try", since="2026-03", until="2026-01")


def test_a_draft_that_is_too_long_is_refused_rather_than_cut(op: Client) -> None:
    """Cut behind 200,000 characters it would be a plan: one without its price of nights."""
    last = '\n[[plan.price]]\nmeter = "gpu-hour"\nunit_price = "9.00"\nwhere = { qos = ["high"] }\n'
    draft = DRAFT + "#" * (200_000 - len(DRAFT)) + last
    for act in ("preview", "publish"):
        page_text = sent(op, draft, act=act)
        assert "The draft has 200,082 characters, and a page takes 200,000." in page_text
        assert "Publish it as a file with apply." in page_text
    assert "9.00" in page_text  # nothing that was written is lost
    assert not PlanVersion.objects.filter(effective_from=date(2030, 1, 1)).exists()
    whole = DRAFT + "#" * (200_000 - len(DRAFT))
    assert " published." in sent(op, whole, act="publish")


def test_op_publishes_a_version_and_can_write_it_again_until_it_is_used(op: Client, house: House) -> None:
    page_text = sent(op, act="publish")
    assert "Plan vision-deal from 2030-01-01 published. The usage of 1 tenant is rated again." in page_text
    assert "From 1 Jan 2030 Scheduled" in page_text
    assert OutboxMessage.objects.filter(task__endswith="rate_tenants").exists()
    sent(op, DRAFT.replace('"3.00"', '"4.00"'), act="publish")
    version = PlanVersion.objects.get(plan__name="vision-deal", effective_from="2030-01-01")
    assert version.prices.get().scale["tiers"][0]["unit_price"] == "4"
    history = page(house.op, f"/admin/billing/planversion/{version.pk}/history/")
    assert "op@cluster.example" in history


def test_case_050_a_used_version_is_not_edited_and_old_invoices_stay(op: Client, house: House) -> None:
    before = (stories.total(house.invoice), stories.printed(house.invoice))
    text = words(page(house.op, "/operator/plans/vision-deal/"))
    assert "In use: prices can be ended or corrected" in text
    refused = sent(op, DRAFT.replace("2030-01-01", "2017-01-01"), act="publish")
    assert (
        "Plan vision-deal from 2017-01-01 is in use, so it stays as it is: publish the draft with a later"
        in refused
    )
    sent(op, DRAFT.replace("2030-01-01", "2026-04-01"), act="publish")
    assert (stories.total(house.invoice), stories.printed(house.invoice)) == before
    closed = stories.closed("2026-03", house.vision)
    assert closed.outcome.value == "already issued"


def test_case_049_a_plan_in_use_is_not_deleted_and_is_archived_when_nobody_is_on_it(
    op: Client, house: House
) -> None:
    assert "Delete" not in words(page(house.op, "/operator/plans/vision-deal/"))
    answer = op.post("/operator/plans/vision-deal/", {"act": "delete"}, follow=True)
    assert "1 tenant is or was on plan vision-deal, so it is kept for what it billed." in words(
        answer.content.decode()
    )
    house.vision.subscriptions.update(until=builders.at("2026-04-01"))
    assert "vision-deal Archived" in words(page(house.op, "/operator/plans/"))
    a_version(VOLUME, name="mistake")
    op.post("/operator/plans/mistake/", {"act": "delete"})
    assert not Plan.objects.filter(name="mistake").exists()


def test_a_price_in_use_is_ended(op: Client, house: House) -> None:
    price = Price.objects.get(version__plan__name="vision-deal")
    answer = op.post(
        "/operator/plans/vision-deal/", {"act": "end", "price": price.pk, "on": "2030-06-01"}, follow=True
    )
    assert "GPU time, a100 ends on 1 Jun 2030; usage is rated again." in words(answer.content.decode())
    price.refresh_from_db()
    assert str(price.valid_until) == "2030-06-01"
    for on, sentence in (("", "Enter the day on which"), ("2016-01-01", "1 Jan 2016 is not in the future")):
        refused = op.post(
            "/operator/plans/vision-deal/", {"act": "end", "price": price.pk, "on": on}, follow=True
        )
        assert sentence in words(refused.content.decode())


def test_a_price_in_use_is_corrected_with_a_reason(op: Client, house: House) -> None:
    price = Price.objects.get(version__plan__name="vision-deal")
    for amount, reason, sentence in (
        ("", "as agreed", "Enter the price per unit as a number"),
        ("NaN", "as agreed", "Enter the price per unit as a number"),
        ("-1", "as agreed", "Enter the price per unit as a number"),
        ("1e3", "as agreed", "Enter the price per unit as a number"),
        ("2.75", " ", "Say why the price"),
        (
            "2.75",
            "as agreed",
            "GPU time, a100 corrected. The next month-end close bills or credits the difference",
        ),
    ):
        form = {"act": "correct", "price": price.pk, "amount": amount, "reason": reason}
        answer = op.post("/operator/plans/vision-deal/", form, follow=True)
        assert sentence in words(answer.content.decode()), amount
    price.refresh_from_db()
    assert price.unit_price == Decimal("2.75")
    assert AuditEntry.objects.of(price).order_by("-pk")[0].why == "as agreed"
    assert "2.75 per GPU-hour" in words(page(house.op, "/operator/plans/vision-deal/"))


def test_a_typo_in_the_year_ends_no_price_years_back(op: Client) -> None:
    price = Price.objects.get(version__plan__name="vision-deal")
    today = datetime.now(UTC).date()
    for on in (date(2026, 3, 3), today):
        answer = op.post(
            "/operator/plans/vision-deal/", {"act": "end", "price": price.pk, "on": str(on)}, follow=True
        )
        assert "is not in the future: a price can end from tomorrow on" in words(answer.content.decode())
    price.refresh_from_db()
    assert price.valid_until is None
    assert not OutboxMessage.objects.filter(task__endswith="rate_tenants").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[plan]", "This is not TOML"),
        (
            DRAFT + DRAFT.replace("2030", "2031"),
            "Write one [[plan]] here, with its prices, and nothing else.",
        ),
        (DRAFT + '[seller]\nname = "x"\n', "Write one [[plan]] here"),
        (DRAFT.replace("from = 2030-01-01\n", ""), "is missing"),
        (DRAFT.replace('"3.00"', "3.00"), "3.00 without quotes, which is not exact"),
        (DRAFT.replace("gpu-hour", "gpu-minute"), "'gpu-minute' is not a meter; those are gpu-hour"),
    ],
)
def test_the_page_refuses_what_apply_refuses_in_its_words(op: Client, text: str, sentence: str) -> None:
    page_text = sent(op, text)
    assert sentence in page_text
    assert "Publish from" not in page_text


def test_a_version_is_written_as_a_file_that_makes_it_again(op: Client, house: House) -> None:
    page_text = sent(op, STANDARD, act="publish")
    assert " published." in page_text
    version = PlanVersion.objects.select_related("plan").get(plan__name="standard")
    text = plan_text(version)
    assert one_plan(text).name == "standard"
    rows = list(
        version.prices.order_by("position").values(
            "selector", "scale", "unit_price", "valid_from", "valid_until"
        )
    )
    version.prices.filter(scale={}).update(unit_price="9")
    sent(op, text, act="publish")
    again = PlanVersion.objects.get(plan__name="standard")
    assert list(again.prices.order_by("position").values(*rows[0])) == rows
    assert plan_text(again) == text
    assert parse(text).plans[0].terms == parse(STANDARD).plans[0].terms
    html = page(house.op, "/operator/plan-editor/?plan=standard&version=2026-01-01")
    assert "Included hours" in html
    assert (
        signed_in(house.op).get("/operator/plan-editor/?plan=standard&version=2026-01-02").status_code == 404
    )
    assert signed_in(house.op).get("/operator/plan-editor/?plan=none").status_code == 404


def test_ann_sees_no_plans_of_the_operator(house: House) -> None:
    for path in ("/operator/plans/", "/operator/plans/vision-deal/", "/operator/plan-editor/"):
        assert signed_in(house.ann).get(path).status_code == 404
