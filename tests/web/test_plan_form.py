"""Op writes plans in a form without scripts: rows are added by a button, and nothing holds before it is published."""

from __future__ import annotations

import re
from datetime import date
from html import unescape

import pytest
from django.db import transaction
from django.test import Client

from billing.models import Plan, PlanVersion
from billing.models.plans import SELECTORS
from clusters import meters
from portal.config_file import drafts
from portal.config_file.drafts import one_plan
from portal.config_file.entries import Entry, fields_of
from portal.config_file.export import entry_text
from portal.config_file.plan_entries import PlanEntry, PriceEntry
from portal.web import plan_form
from portal.web.plan_controls import LABELS, SELECTOR_LABELS, TERM_LABELS, TITLES
from portal.web.plan_templates import TEMPLATES, list_price, started
from tests.scenarios.test_simulate_plan import STANDARD
from tests.web.forms import fields
from tests.web.house import a_house, signed_in
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
        answer = self.op.post(EDITOR, sent, follow=True)
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


def test_every_field_of_a_plan_has_its_label_in_the_form() -> None:
    kinds: list[type[Entry]] = [PlanEntry, *(field.entry for field in fields_of(PlanEntry) if field.entry)]
    kinds += [field.entry for field in fields_of(PriceEntry) if field.entry]
    for kind in kinds:
        for field in fields_of(kind):
            labelled = field.key in TITLES if field.entry else f"{kind.noun}.{field.key}" in LABELS
            assert labelled or field.key in {*TERM_LABELS, "where"}, (kind, field.key)
    assert set(SELECTOR_LABELS) == set(SELECTORS)


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


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"plan.price.0": "x", "plan.price.x.meter": "y", "plan.price.99999999.meter": "y"},
        {"plan.price.0.tiers.0.up_to.a.b.c.d": "1", "plan.charges.0": "z", "plan..": "", "plan": "q"},
        {"plan.price.0.model": "nonsense", "plan.price.0.where": "text", "plan.from": "1-1-1"},
        {"plan.name": "\0<script>", "plan.price.0.meter": "gpu-minute", "plan.price.0.unit_price": "NaN"},
    ],
)
def test_whatever_is_sent_is_answered_with_sentences(op: Client, form: dict[str, str]) -> None:
    for act in (
        "preview",
        "publish",
        "try",
        "toml",
        "form",
        "add",
        "add price.7.tiers",
        "remove price.x",
        "up .",
    ):
        answer = op.post(EDITOR, form | {"act": act})
        assert answer.status_code == 200
        assert "Publish from" not in words(answer.content.decode())
    assert Plan.objects.count() == 2


def _toml(html: str) -> str:
    match = re.search(r"<textarea[^>]*>(.*?)</textarea>", html, re.DOTALL)
    assert match
    return unescape(match[1])
