"""The administration: lists, forms, actions, and Django's way from a row to its page."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.urls import reverse

from tests.hostile.forms import Form, assert_is_an_answer, forms_of
from tests.hostile.mangling import INPUTS, Mangler
from tests.web.house import a_house, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.larger, pytest.mark.peers]  # takes long


def test_whatever_is_sent_to_the_administration_is_answered() -> None:
    house = a_house()
    assert (house.wallet.tenant, house.card.tenant) == (house.vision, house.vision)
    client, chance = signed_in(house.op), Mangler(31)
    forms: list[Form] = []
    admin.autodiscover()
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.first()
        paths = [reverse(f"{name}_changelist"), reverse(f"{name}_add")]
        paths += [reverse(f"{name}_{act}", args=[row.pk]) for act in ("change", "delete", "history") if row]
        for path in paths:
            answer = client.get(path)
            if answer.status_code == 200:
                forms += list(forms_of(path, answer.content.decode()))
        forms.append(
            Form(
                paths[0],
                "GET",
                dict.fromkeys((*model_filters(model), "q", "o", "p", "all", "e", "_popup"), ""),
            )
        )
    assert len(forms) > 60
    for number in range(INPUTS):
        form = forms[number % len(forms)]
        fields = chance.spoil_form(form.fields)
        assert_is_an_answer((form.path, fields), form.sent(client, fields))


def model_filters(model: type) -> list[str]:
    filters = admin.site._registry[model].get_list_filter(None)  # type: ignore[arg-type]  # none of ours asks for it
    return [f"{choice}__exact" for choice in filters if isinstance(choice, str)]


def test_a_year_that_no_calendar_has_is_no_filter() -> None:
    house = a_house()
    client = signed_in(house.op)
    for address in ("invoice/?issued_on__year", "payment/?received_on__year"):
        for year in ("9" * 26, "9999999999", "99999999", "0", "x", "2026"):
            assert client.get(f"/admin/billing/{address}={year}", follow=True).status_code == 200, (
                address,
                year,
            )


def test_no_row_has_a_page_elsewhere() -> None:
    house = a_house()
    client = signed_in(house.op)
    for kind in ContentType.objects.all():
        for name in ("1", "x", "0", "9" * 30, "a-b", "None"):
            assert client.get(f"/admin/r/{kind.pk}/{name}/").status_code == 404
