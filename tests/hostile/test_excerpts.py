"""Whoever writes 5,000 characters where a name belongs, a sentence repeats 80 of them at most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.forms import MultipleChoiceField

from clusters.connection_form import ConnectionForm
from clusters.connectors.base import ConnectorError
from clusters.connectors.prometheus import client
from clusters.connectors.prometheus.facts import naming
from clusters.connectors.sacct import json_export
from clusters.connectors.sacct.text_export import open_export
from portal.web.nodes import NodeForm
from tests.contracts.prometheus_reading import connector as prometheus_at
from tests.contracts.sacct_exports import COLUMNS, UTC, read_rows, row
from tests.contracts.slurm_recorded import NOW, Reply, Slurm, a_job, live_jobs, refused, serving
from tests.contracts.slurm_recorded import connector as slurm_at
from tests.fakes.prometheus import Reply as PrometheusReply
from tests.fakes.prometheus import StandIn, error, success
from tests.hostile.forms import forms_of, page_text
from tests.hostile.mangling import LONG, REPEATED
from tests.hostile.shell import refusal
from tests.scenarios.configuring import PHILLY
from tests.web.house import a_house, signed_in


def test_columns_that_are_no_listing_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text(f"JobName{LONG}|Cluster\n")
    with pytest.raises(ConnectorError, match=r"its columns are JobNamex+ … The command is") as caught:
        open_export(path, zone=UTC)
    assert REPEATED not in str(caught.value)


def test_names_of_several_clusters_in_a_file(tmp_path: Path) -> None:
    header = "|".join([*COLUMNS, "Cluster"])
    (note,) = read_rows(tmp_path, f"{row()}|alex", f"{row()}|{LONG}", header=header).reading.notes
    assert note.startswith("The rows are of several clusters (alex, x")
    assert REPEATED not in note

    jobs = [{**a_job(number, submit=NOW), "cluster": name} for number, name in enumerate(("alex", LONG), 1)]
    (tmp_path / "export.json").write_text(json.dumps({"jobs": jobs}))
    export = json_export.open_export(tmp_path / "export.json")
    assert len(list(export.rows())) == 2
    assert export.reading.notes == [note]


def test_words_of_sacct_itself(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"jobs": [], "errors": [{"error_number": 7000, "error": LONG}]}))
    with pytest.raises(ConnectorError, match=r'sacct failed as it wrote export.json \("x+…"\)') as caught:
        list(json_export.open_export(path).rows())
    assert REPEATED not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=json.dumps({"jobs": [], "errors": [{"error_number": 12, "error": LONG}]}).encode()),
        Reply(302, headers={"Location": f"https://sso.example.org/{LONG}"}),
        Reply(200, b"<html>", f"text/{LONG}"),
    ],
    ids=["words", "location", "kind"],
)
def test_words_of_slurmrestd(reply: Reply) -> None:
    sentence = str(refused(Slurm(replies={"/slurmdb/v0.0.42/jobs": reply})))
    assert "x" * 50 in sentence
    assert REPEATED not in sentence


def test_names_of_clusters_behind_one_slurmdbd() -> None:
    jobs = [{**a_job(number, submit=NOW - 60), "cluster": name} for number, name in ((1, "lab"), (2, LONG))]
    with serving(Slurm(jobs=jobs, live=live_jobs())) as address:
        source = slurm_at(address, now=NOW, cluster="lab")
        list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
        (note,) = source.reading.notes
        assert note.startswith("Of the cluster xxx")
        source = slurm_at(address, now=NOW, cluster="")
        with pytest.raises(ConnectorError, match="Rows of several clusters come") as caught:
            list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert REPEATED not in note + str(caught.value)


@pytest.mark.parametrize(
    "response",
    [
        error(422, "execution", LONG),
        success(warnings=[LONG]),
        PrometheusReply(302, b"", "text/html", {"location": f"https://sso.example.org/{LONG}"}),
        PrometheusReply(200, b"<html>", f"text/{LONG}"),
    ],
    ids=["words", "warning", "location", "kind"],
)
def test_words_of_prometheus(response: PrometheusReply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "AGAIN", ())  # seconds: not asked again
    with StandIn(lambda _: response, now=NOW) as prometheus:
        source = prometheus_at(prometheus.url)
        with pytest.raises(ConnectorError) as caught:
            list(source.usage(since=NOW - 7200, until=NOW, open_keys=()))
        source.close()
    assert "x" * 50 in str(caught.value)
    assert REPEATED not in str(caught.value)


def test_names_of_pods() -> None:
    assert REPEATED not in naming([f"vision/{LONG}{number}" for number in range(9)])


TWICE = f'{{ cluster = "philly", account = "{LONG[:200]}" }}'


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"[{LONG}]\n[{LONG}]\n", "This is not TOML: Cannot declare ('xxx"),
        (PHILLY.replace('"1.10"', f"1.{'1' * 400}"), "unit_price is 1.111"),
        (
            f'{PHILLY}[[tenant]]\nslug = "bio"\nname = "Biology"\naccounts = [{TWICE}, {TWICE}]\n',
            "(philly/xxx",
        ),
        (f'[[cluster]]\nname = "{LONG[:100]}"\ntelemetry = {{ url = "http://a" }}\n', 'cluster "xxx'),
    ],
    ids=["key", "number", "account", "cluster"],
)
def test_what_stands_in_a_configuration_file(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    message = refusal("apply", str(path))
    assert sentence in message
    assert REPEATED not in message
    assert "1" * 81 not in message


@pytest.mark.django_db
def test_choices_that_there_are_not() -> None:
    """In every form with choices of the administration, and of the pages of a cluster."""
    house = a_house()
    client = signed_in(house.op)
    sent = {
        "/admin/tenants/tenant/add/": ["corrections", "zero_invoices", "tax_treatment"],
    }
    for path, names in sent.items():
        (form,) = [form for form in forms_of(path, client.get(path).content.decode()) if form.path == path]
        answer = form.sent(client, form.fields | dict.fromkeys(names, LONG))
        assert page_text(answer).count("Select one of the choices.") == len(names)
        assert REPEATED not in page_text(answer)
    for field in (
        NodeForm.base_fields["state"],
        ConnectionForm.base_fields["forget"],
    ):
        with pytest.raises(ValidationError, match=r"^\['Select one of the choices.'\]$"):
            field.clean([LONG] if isinstance(field, MultipleChoiceField) else LONG)
