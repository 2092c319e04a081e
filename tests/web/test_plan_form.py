"""Op writes plans in a form without scripts: rows are added by a button, and nothing holds before it is published."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction
from django.db.models import TextChoices
from django.test import Client

from billing.models import Plan, PlanQuota, PlanVersion, QuotaAction, QuotaCredits
from billing.models.plans import SELECTORS
from clusters import meters
from portal.config_file import drafts
from portal.config_file.drafts import one_plan
from portal.config_file.entries import Entry, fields_of
from portal.config_file.export import entry_text
from portal.config_file.plan_entries import PlanEntry, PriceEntry
from portal.web import plan_form
from portal.web.plan_controls import ON_PAGE
from portal.web.plan_difference import quota_words
from portal.web.plan_labels import NOUNS, SELECTOR_LABELS, TITLES, label_of
from portal.web.plan_templates import TEMPLATES, list_price, started
from tests.builders import at
from tests.configuring_terms import apply
from tests.scenarios.test_plans_written_back import FULL, MODELS, rows
from tests.scenarios.test_simulate_plan import STANDARD
from tests.web.forms import fields
from tests.web.house import a_house, signed_in
from tests.web.previewing import computed
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

EDITOR = "/operator/plan-editor/"
EVERYTHING = """[[plan]]
name = "deal"
currency = "USD"
settles = "wallet-first"
charges = ["gpu", "tokens"]
from = 2030-01-01
commitment = { amount = "500", overage_factor = "1.5" }

[[plan.allowance]]
name = "Included hours"
hours = "100"
rollover = true

[[plan.fee]]
name = "Base fee"
amount = "150"
in_advance = true

[[plan.discount]]
name = "Launch"
percent = "10"
until = 2030-03-01

[[plan.quota]]
name = "monthly"
measure = "money"
amount = "5000"
every = "month"
thresholds = []
forecast_thresholds = ["90%", "100%"]
carry_over = 20
action = "end-jobs"
grace_minutes = 90
ends_older = true
watch = true

[[plan.quota]]
name = "burst"
measure = "gpu-hours"
amount = "400"
every = "rolling"
hours = 24
gpu_model = "h100"
thresholds = ["50%", "80%", "100%"]

[[plan.price]]
meter = "gpu-hour"
where = { queue = ["gpu"], gpu_model = ["a100", "h100"] }
hours = [{ days = "mon-fri", from = "20:00", to = "08:00" }, { days = "sat-sun" }]
model = "graduated"
tiers = [{ up_to = "100", unit_price = "3" }, { unit_price = "2.5" }]
allowance = "Included hours"

[[plan.price]]
meter = "tokens"
where = { dimension = ["model=large"] }
model = "package"
package = "10"
package_price = "4"
tenant = "vision-lab"
from = 2030-02-01
until = 2030-06-01
"""


class Editor:
    """The page as somebody with a keyboard has it: what stands in the form is sent with every button."""

    def __init__(self, op: Client, address: str) -> None:
        self.op = op
        self.html = op.get(address).content.decode()

    @property
    def text(self) -> str:
        return words(self.html)

    @property
    def values(self) -> dict[str, list[str]]:
        return {name: values for name, values in fields(self.html).items() if name.startswith("plan.")}

    def press(self, act: str, **typed: str) -> str:
        sent = fields(self.html) | {"act": [act]}
        sent |= {f"plan.{name.replace('__', '.')}": [value] for name, value in typed.items()}
        answer = computed(self.op, self.op.post(EDITOR, sent))
        assert answer.status_code == 200
        self.html = answer.content.decode()
        return self.text


@pytest.fixture
def op() -> Client:
    return signed_in(a_house().op)


def test_op_writes_a_version_in_the_form_sees_what_it_changes_and_publishes_it(op: Client) -> None:
    editor = Editor(op, f"{EDITOR}?plan=vision-deal")
    assert "GPU time (GPU-hour)" in editor.text
    first = {"from": "2030-01-01", "price__0__unit_price": "2.50"}
    text = editor.press("add price", **first)
    assert "Price 2" in text
    assert editor.values["plan.price.0.unit_price"] == ["2.50"]  # what was typed stays
    text = editor.press("preview", price__1__where__gpu_model="h100", price__1__model="graduated")
    assert "price 2 has no tiers yet." in text
    assert "Publish from" not in text
    editor.press("add price.1.tiers")
    editor.press("add price.1.tiers")
    text = editor.press(
        "preview",
        price__1__tiers__0__up_to="1000",
        price__1__tiers__0__unit_price="4",
        price__1__tiers__1__unit_price="3,50",
    )
    assert "price 2, tier 2: unit price is '3,50'; enter a number like 2.50." in text
    text = editor.press("preview", price__1__tiers__1__unit_price="3.50")
    assert "Changes to the version of 1 Jan 2017" in text
    assert "GPU time, a100 Changed $2.00 per GPU-hour $2.50 per GPU-hour" in text
    assert "GPU time, h100 New – graduated: up to 1,000 at $4.00, above at $3.50" in text
    assert "3 other terms and prices stay as they are." in text
    assert "+$3.25, +25 %" in text  # 6.5 hours at 2.50 instead of 2.00
    text = editor.press("publish", price__0__unit_price="25.0")
    assert "Not published yet: the draft, or what it is compared with, has changed." in text
    assert "+$149.50, +1150 %" in text
    assert not PlanVersion.objects.filter(effective_from=date(2030, 1, 1)).exists()
    editor.press("preview", price__0__unit_price="2.5")
    assert "Plan vision-deal from 2030-01-01 published." in editor.press("publish")
    version = PlanVersion.objects.get(effective_from=date(2030, 1, 1))
    assert [(row.gpu_models, row.model) for row in version.prices.order_by("position")] == [
        (["a100"], "per_unit"),
        (["h100"], "graduated"),
    ]


def test_another_version_that_came_meanwhile_is_seen_before_anything_is_published(op: Client) -> None:
    editor = Editor(op, f"{EDITOR}?plan=vision-deal")
    editor.press("preview", **{"from": "2030-02-01", "price__0__unit_price": "3"})
    other = Editor(op, f"{EDITOR}?plan=vision-deal")
    other.press("preview", **{"from": "2030-01-01", "price__0__unit_price": "9"})
    other.press("publish")
    text = editor.press("publish")
    assert "Not published yet" in text
    assert "GPU time, a100 Changed $9.00 per GPU-hour $3.00 per GPU-hour" in text
    assert "Plan vision-deal from 2030-02-01 published." in editor.press("publish")


def test_a_version_of_the_same_day_that_came_meanwhile_is_not_replaced_unseen(op: Client) -> None:
    editor, other = (Editor(op, f"{EDITOR}?plan=vision-deal") for _ in range(2))
    for one, amount in ((editor, "3"), (other, "9")):
        text = one.press("preview", **{"from": "2030-01-01", "price__0__unit_price": amount})
        assert "The draft replaces" not in text
    other.press("publish")
    text = editor.press("publish")
    assert "Not published yet" in text
    assert "The draft replaces the version that begins on the same day" in text
    price = PlanVersion.objects.get(effective_from=date(2030, 1, 1)).prices.get()
    assert price.unit_price == 9
    assert "Plan vision-deal from 2030-01-01 published." in editor.press("publish")


def test_form_and_toml_say_the_same_of_every_field_of_a_plan(op: Client) -> None:
    meters.declare_meter(name="tokens", title="Tokens", unit="million tokens", dimensions=["model"])
    answer = op.post(EDITOR, {"text": EVERYTHING, "act": "form"})
    editor = Editor(op, f"{EDITOR}?plan=vision-deal")
    editor.html = answer.content.decode()
    assert "Tokens (million tokens)" in editor.text
    editor.press("toml")
    assert _toml(editor.html) == entry_text(one_plan(EVERYTHING))
    for draft in (EVERYTHING, STANDARD):
        entry = one_plan(draft)
        assert entry_text(plan_form.entry_of(plan_form.of_entry(entry))) == entry_text(entry)


def test_a_version_that_is_published_again_by_the_form_is_the_one_of_the_file(op: Client) -> None:
    apply(FULL)
    before = _stored()
    editor = Editor(op, f"{EDITOR}?plan=full&version=2026-01-01")
    editor.press("add quota")
    editor.press("add price.0.hours")  # rows that nothing is typed into are left out
    assert "The draft says the same" not in editor.press("preview"), "a first version is new as a whole"
    assert "Plan full from 2026-01-01 published." in editor.press("publish")
    assert _stored() == before


def test_op_gives_a_plan_a_budget_in_the_form_and_changes_its_notices_alone(op: Client) -> None:
    editor = Editor(op, f"{EDITOR}?plan=vision-deal")
    editor.press("add quota", **{"from": "2030-01-01"})
    assert editor.values["plan.quota.0.thresholds"] == ["50%, 80%, 100%"]
    budget = {"quota__0__amount": "900", "quota__0__action": "no-gpu-jobs"}
    text = editor.press("preview", quota__0__carry_over="a fifth", **budget)
    assert "quota 1: carry over is 'a fifth'; enter a whole number like 20." in text
    text = editor.press("preview", quota__0__carry_over="20", quota__0__name="monthly")
    assert (
        "Budget monthly New – $900.00, each month, everything: no new GPU job starts; "
        "up to 20 % carries over; notices at 50%, 80%, 100%"
    ) in text
    editor.press("publish")
    row = PlanQuota.objects.get()
    assert (row.amount, row.unit) == (Decimal(900), "USD")
    assert (row.carry_over, row.action) == (20, "no-gpu-jobs")
    editor = Editor(op, f"{EDITOR}?plan=vision-deal")
    text = editor.press("preview", **{"from": "2030-02-01", "quota__0__thresholds": ""})
    assert "Budget monthly Changed $900.00" in text
    assert "no notices of use" in text


def test_the_words_of_a_budget_tell_each_of_its_columns() -> None:
    values = {
        "measure": "money",
        "unit": "USD",
        "amount": Decimal(100),
        "every": "month",
        "action": "end-jobs",
    }
    others = {
        **dict.fromkeys(("cluster", "queue", "qos", "gpu_model"), "x"),
        **dict.fromkeys(("with_paid", "carry_overdraft", "ends_older", "watch"), True),
        **dict.fromkeys(("carry_over", "grace_minutes"), 20),
        **dict.fromkeys(("repeat_every", "reservation_cap", "amount"), Decimal(7)),
        "thresholds": ["90%"],
        "forecasts": ["90%"],
        "unit": "",
        "credits": "net",
        "every": "week",
        "action": "notify",
    }
    elsewhere = {"id", "version", "name", "measure", "first_day", "end_day", "hours"}
    assert {field.name for field in PlanQuota._meta.concrete_fields} == {*others, *elsewhere}
    plain = quota_words(PlanQuota(**values))
    for column, value in others.items():
        assert quota_words(PlanQuota(**values | {column: value})) != plain, column
    kinds: dict[str, type[TextChoices]] = {"credits": QuotaCredits, "action": QuotaAction}
    for column, kind in kinds.items():
        assert len({quota_words(PlanQuota(**values | {column: value})) for value in kind.values}) == len(
            kind.values
        )
    term = {"every": "term", "first_day": date(2030, 1, 1)}
    ends = {quota_words(PlanQuota(**values | term | {"end_day": date(2030, 2, day)})) for day in (1, 2)}
    assert len(ends) == 2
    assert len({quota_words(PlanQuota(**values | {"every": "rolling", "hours": n})) for n in (24, 48)}) == 2


def test_every_field_of_a_plan_has_its_label_in_the_form() -> None:
    kinds: list[type[Entry]] = [PlanEntry, *(field.entry for field in fields_of(PlanEntry) if field.entry)]
    kinds += [field.entry for field in fields_of(PriceEntry) if field.entry]
    for kind in kinds:
        for field in fields_of(kind):
            if field.entry:
                assert {*TITLES, *NOUNS} >= {field.key}, (kind, field.key)
            elif field.key != "where" and not (kind is PlanEntry and field.key in ON_PAGE):
                assert label_of(kind, field)[0], (kind, field.key)
    assert set(SELECTOR_LABELS) == set(SELECTORS)


def test_nights_and_weekends_are_every_night_and_all_of_the_weekend() -> None:
    raw = started("nights", ["a100"], begins=date(2030, 1, 1))
    cheap = plan_form.entry_of(raw).prices[1].hours
    assert cheap is not None
    week = [int(at(day).timestamp()) for day in ("2030-01-07", "2030-01-14")]  # from Monday to Monday
    spans = list(cheap.between(*week, zone=ZoneInfo("UTC")))
    assert sum(end - start for start, end in spans) == (5 * 12 + 2 * 24) * 3600
    assert spans[0] == (week[0], week[0] + 8 * 3600)  # Monday until 08:00


def test_each_template_begins_a_plan_for_the_models_that_there_are(op: Client) -> None:
    html = op.get(EDITOR).content.decode()
    assert "a100 list price $2.21" in words(html)
    models = ["a100", "H100-SXM5-80GB", "mystery"]
    for template in TEMPLATES:
        raw = started(template, models, begins=date(2030, 1, 1))
        for row in [row for price in raw["price"] for row in (price, *price["tiers"])]:
            row["unit_price"] = row["unit_price"] or "7"
        entry = plan_form.entry_of(raw)
        assert {model for price in entry.prices for model in price.where["gpu_model"]} == set(models)
        with transaction.atomic():
            drafts.write([entry], f"by-{template}")  # as publishing does
            transaction.set_rollback(True)
    address = f"{EDITOR}?template=included&model=a100&model=mystery"
    editor = Editor(op, address)
    assert editor.values["plan.price.0.unit_price"] == ["2.21"]
    assert editor.values["plan.price.1.unit_price"] == [""]
    assert "price 2: unit price is missing." in editor.press("preview")
    assert "Publish from" in editor.press("preview", price__1__unit_price="0.50")
    assert list_price("NVIDIA A100-SXM4-80GB") == "2.21"
    assert list_price("A100-SXM4-40GB") == "1.65"
    assert list_price("NVIDIA L4") == "0.81"
    assert list_price("NVIDIA L40S") == ""


HOSTILE: list[dict[str, str]] = [
    {},
    {"plan.price.0": "x", "plan.price.x.meter": "y", "plan.price.99999999.meter": "y"},
    {"plan.price.0.tiers.0.up_to.a.b.c.d": "1", "plan.charges.0": "z", "plan..": "", "plan": "q"},
    {"plan.price.0.model": "nonsense", "plan.price.0.where": "text", "plan.from": "1-1-1"},
    {"plan.name": "\0<script>", "plan.price.0.meter": "gpu-minute", "plan.price.0.unit_price": "NaN"},
    {"plan.quota.0.hours": "²", "plan.quota.0.thresholds.x": "y", "plan.quota.1.every": "aeon"},
    {"plan.quota.0.name": "a", "plan.quota.0.grace_minutes": "9" * 900, "plan.quota.0.watch": "maybe"},
]


def test_whatever_is_sent_is_answered_with_sentences(op: Client) -> None:
    row_acts = ("add", "add price.7.tiers", "add quota", "remove price.x", "up .")
    for form in HOSTILE:
        for act in ("preview", "publish", "try", "toml", "form", *row_acts):
            answer = computed(op, op.post(EDITOR, form | {"act": act}))
            assert answer.status_code == 200
            assert "Publish from" not in words(answer.content.decode())
    assert Plan.objects.count() == 2


def _toml(html: str) -> str:
    match = re.search(r"<textarea[^>]*>(.*?)</textarea>", html, re.DOTALL)
    assert match
    return unescape(match[1])


def _stored() -> list[object]:
    version = PlanVersion.objects.select_related("plan").get(plan__name="full")
    return [version.charges, version.plan.settles, *(rows(model, version) for model in MODELS)]
