"""Op connects a Prometheus by choosing: no option that is set in daily life has to be written as JSON."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest
from django.test import Client

from clusters.connectors.prometheus.catalog import Preset
from clusters.connectors.prometheus.options import AccountFrom, ChargeFrom, Claims, CpuMemory, Hami, Scope
from clusters.connectors.prometheus.token_options import TokenServer
from clusters.models import Connection, DeclaredMeter
from clusters.prometheus_form import OPTIONS
from tests.builders import a_cluster, an_operator
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/clusters/kube/connection/"
SENT = {"base_url": "https://prom.example.org", "every": "300", "look_back": "48", "enabled": "on"}
CHOICES: dict[str, type[StrEnum]] = {
    "preset": Preset,
    "account_from": AccountFrom,
    "charge_from": ChargeFrom,
    "cpu_memory": CpuMemory,
    "hami": Hami,
    "claims": Claims,
    "utilisation_scope": Scope,
    "tokens_server": TokenServer,
}


@pytest.fixture
def op() -> Client:
    a_cluster("kube")
    for name in ("core-hours", "gib-hours", "llm-tokens"):
        DeclaredMeter.objects.create(name=name, title=name, unit="unit", counted="units")
    return signed_in(an_operator())


def sends(op: Client, **fields: str) -> str:
    """What the page says to it; "" where it is saved."""
    answer = op.post(f"{PATH}?kind=prometheus", SENT | fields)
    return "" if answer.status_code == 302 else answer.content.decode()


def stored() -> Any:
    return Connection.objects.get().options


def mistake_at(html: str, name: str) -> str:
    """What stands below the field."""
    _, found, rest = html.partition(f'id="id_{name}_error">')
    assert found, words(html)
    return rest.partition("</div>")[0]


def test_what_is_chosen_is_stored_as_the_file_has_it(op: Client) -> None:
    assert sends(op) == ""
    assert stored() == {}
    chosen = {
        "matcher": 'cluster="kube"',
        "account_from": "namespace label",
        "account_label": "label_tenant",
        "cpu_memory": "all",
        "use_cpu": "core-hours",
        "volumes": "gib-hours",
        "utilisation_scope": "node",
        "tokens_server": "vllm",
        "tokens_since": "2026-03-01T00:00Z",
    }
    assert sends(op, **chosen) == ""
    assert stored() == {
        "matcher": 'cluster="kube"',
        "account_from": "namespace label",
        "account_label": "label_tenant",
        "cpu_memory": "all",
        "use": {"cpu": "core-hours"},
        "volumes": "gib-hours",
        "utilisation": {"scope": "node"},
        "tokens": {"server": "vllm", "since": "2026-03-01T00:00Z"},
    }
    form = op.get(PATH).content.decode()
    for name, value in chosen.items():
        shown = f'<option value="{value}" selected>' if name in CHOICES or value.endswith("hours") else value
        assert shown.replace('"kube"', "&quot;kube&quot;") in form, name


def test_groups_that_are_seldom_needed_are_folded_until_something_in_them_is_set(op: Client) -> None:
    def folded(html: str) -> list[str]:
        parts = html.split('<details class="ct-fold"')[1:]
        return [
            words(part.partition("</h2>")[0].partition("<h2")[2].partition(">")[2])
            for part in parts
            if part[0] == ">"
        ]

    rare = ["What is read beside GPUs", "Tokens of models", "Options"]
    assert folded(op.get(f"{PATH}?kind=prometheus").content.decode()) == rare
    assert folded(sends(op, tokens_since="soon", hami="cores", options="nothing")) == []
    assert sends(op, hami="cores") == ""
    assert folded(op.get(PATH).content.decode()) == rare[1:]


def test_options_without_a_field_stay_and_an_emptied_field_is_taken_away(op: Client) -> None:
    rare = {
        "models": {"NVIDIA-H100-80GB-HBM3": "h100"},
        "shares": {"a100": {"1g.10gb": "1/4"}},
        "utilisation": {"metric": "DCGM_FI_DEV_GPU_UTIL"},
        "tokens": {"served_by": {"large": "kube/vision"}},
    }
    tokens = {"tokens_server": "vllm", "tokens_since": "2026-03-01T00:00Z", "user_label": "label_user"}
    assert sends(op, options=json.dumps(rare), **tokens) == ""
    whole = stored()
    assert whole["tokens"] == {
        "served_by": {"large": "kube/vision"},
        "server": "vllm",
        "since": "2026-03-01T00:00Z",
    }
    form = op.get(PATH).content.decode()
    assert "NVIDIA-H100-80GB-HBM3" in form
    assert "label_user" not in form.partition('id="id_options"')[2].partition("</textarea>")[0]
    assert sends(op, options=json.dumps(rare), **tokens) == ""
    assert stored() == whole
    del rare["tokens"]
    assert sends(op, options=json.dumps(rare)) == ""
    assert stored() == rare


@pytest.mark.parametrize(
    ("fields", "name", "sentence"),
    [
        ({"account_from": "pod label"}, "account_label", "The option account_from is 'pod label': name it"),
        ({"account_label": "label_tenant"}, "account_from", "account_from"),
        ({"account_from": "queue"}, "preset", "Say with preset whose queue is the account"),
        ({"matcher": "cluster=kube"}, "matcher", ""),
        ({"volume_label": "label_tenant"}, "volume_label", ""),
        ({"tokens_server": "vllm"}, "tokens_since", "The option tokens needs the key since"),
        ({"tokens_server": "vllm", "tokens_since": "soon"}, "tokens_since", ""),
        ({"hami": "gpus"}, "hami", ""),
        ({"volumes": "nothing-declared"}, "volumes", ""),
        ({"options": '{"utilisation": 5}', "utilisation_scope": "node"}, "options", "has to be a table"),
        ({"options": '{"labels": {"pods": "pod"}}'}, "options", "The option labels has no key"),
    ],
)
def test_a_mistake_is_told_at_its_field_and_nothing_is_saved(
    op: Client, fields: dict[str, str], name: str, sentence: str
) -> None:
    html = sends(op, **fields)
    assert html
    assert sentence in words(mistake_at(html, name))
    assert not Connection.objects.exists()
    for field, value in fields.items():
        if field not in {"options", *CHOICES, "volumes"}:
            assert f'value="{value}"' in html  # to be corrected, not typed again


def test_every_value_of_a_choice_has_its_text() -> None:
    offered = {option.name: option.choices.keys() for option in OPTIONS if option.choices}
    assert offered == {name: {*kind} for name, kind in CHOICES.items()}


def test_a_meter_that_was_chosen_stays_to_be_chosen(op: Client) -> None:
    """It may be undeclared since; the next sync says so, and the form does not drop it unseen."""
    assert sends(op, volumes="gib-hours") == ""
    Connection.objects.update(options={"volumes": "gone"})
    assert '<option value="gone" selected>' in op.get(PATH).content.decode()
