"""Declared meters on the operators' page: declared, changed and removed with a preview."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlencode

import pytest

from clusters import meters
from clusters.models import DeclaredMeter
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import OperatorRole, User
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PATH = "/operator/meters/"
TOKENS = {
    "name": "llm-tokens",
    "title": "LLM tokens",
    "unit": "million tokens",
    "counted": "tokens",
    "per_unit": "1000000",
    "dimensions": "model, direction",
}

begun, house = sharing.fixtures(partial(a_house, close=False), "house")


def sends(house: House, act: str, **fields: str) -> str:
    response = signed_in(house.op).post(PATH, {**fields, "act": act}, follow=True)
    return words(response.content.decode())


def test_op_previews_declares_changes_and_removes_a_meter(house: House) -> None:
    assert "No declared meters" in words(page(house.op, PATH))
    preview = words(page(house.op, f"{PATH}?{urlencode(TOKENS | {'act': 'preview'})}"))
    assert (
        "Declare meter llm-tokens? Invoices call it LLM tokens. A price is per million tokens. A quantity counts "
        "tokens, with 0 decimals at most; 1,000,000 of them make 1 million tokens. Sums may be told apart by "
        "model, direction"
    ) in preview
    assert not DeclaredMeter.objects.exists()
    assert "Meter llm-tokens is declared." in sends(house, "save", **TOKENS)
    row = DeclaredMeter.objects.get()
    assert (row.unit, row.per_unit, row.decimals, row.dimensions) == (
        "million tokens", 1_000_000, 0, ["direction", "model"],
    )  # fmt: skip
    assert "million tokens tokens 1,000,000 a unit direction, model Not yet" in words(page(house.op, PATH))
    assert 'value="direction, model"' in page(house.op, f"{PATH}?edit=llm-tokens")
    assert "Change meter llm-tokens?" in words(
        page(house.op, f"{PATH}?{urlencode(TOKENS | {'act': 'preview'})}")
    )
    assert "Remove meter llm-tokens? No sum of it ever came." in words(
        page(house.op, f"{PATH}?remove=llm-tokens")
    )
    assert "Meter llm-tokens is removed." in sends(house, "remove", name="llm-tokens")
    changes = AuditEntry.objects.filter(table="clusters_declaredmeter")
    assert [(entry.operation, entry.who) for entry in changes.order_by("pk")] == [
        ("insert", "op@cluster.example"),
        ("delete", "op@cluster.example"),
    ]


def assert_preview_refuses(house: House, change: dict[str, str], sentence: str) -> None:
    """Before anything is said to be possible, not when it is saved."""
    shown = page(house.op, f"{PATH}?{urlencode(TOKENS | change | {'act': 'preview'})}")
    assert sentence in words(shown)
    assert 'id="preview-title"' not in shown


def test_what_cannot_be_meant_or_is_used_is_refused_in_a_sentence(house: House) -> None:
    for change, sentence in (
        ({"name": "GPU"}, "name"),
        ({"name": "gpu-hour"}, "gpu-hour"),
        ({"per_unit": "many"}, "per_unit"),
        ({"decimals": "12"}, "decimals"),
        ({"dimensions": "Model!"}, "Model!"),
        ({"title": ""}, "title"),
    ):
        text = sends(house, "save", **TOKENS | change)
        assert sentence in text
        assert "is declared." not in text
        assert_preview_refuses(house, change, sentence)
    assert not DeclaredMeter.objects.exists()
    sends(house, "save", **TOKENS)
    meters.mark_used(["llm-tokens"], moment=builders.at("2026-03-05"))
    assert "Sums of it have come" in words(page(house.op, f"{PATH}?{urlencode(TOKENS | {'act': 'preview'})}"))
    assert "is declared." not in sends(house, "save", **TOKENS | {"unit": "tokens"})
    assert_preview_refuses(house, {"unit": "tokens"}, "only dimensions can be added")
    assert "is removed." not in sends(house, "remove", name="llm-tokens")
    assert DeclaredMeter.objects.get().unit == "million tokens"


def test_only_who_may_change_plans_declares_meters(house: House) -> None:
    support = builders.an_operator("sue@cluster.example")
    User.objects.filter(pk=support.pk).update(operator_role=OperatorRole.SUPPORT, is_superuser=False)
    assert "Meters" in page(support, PATH)
    refused = signed_in(support).post(PATH, {**TOKENS, "act": "save"}, follow=True)
    assert "is declared." not in words(refused.content.decode())
    assert not DeclaredMeter.objects.exists()
    assert signed_in(house.ann).get(PATH).status_code == 404
