"""What stands under a person's name is handed out: all of it, without secrets, and without others' data."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.core.management import call_command

from billing.models import Notice
from portal.core.audit import acting_as
from portal.core.tenants.models import Membership, User
from portal.ops import person_data
from portal.ops.cli import BadInputError
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest

pytestmark = pytest.mark.django_db

BEN = "ben@vision.example"
APART = {"tenants.User_groups", "tenants.User_user_permissions"}  # the operator's role says it
NOW = at("2026-04-01")


def ben_of_two_labs() -> User:
    """Ben runs jobs as ben17 for two labs; Eve has jobs under the same name in a third, and Ann is in his."""
    cluster = a_cluster()
    vision, speech, other = (
        a_tenant(name, plan=a_plan(name), accounts=[(cluster, name)])
        for name in ("vision", "speech", "other")
    )
    ingest(
        cluster,
        a_job(job_id="1", user="ben17", name="=bens-train", account="vision"),
        a_job(job_id="2", user="ben-s", name="bens-speech", account="speech"),
        a_job(job_id="3", user="ben17", name="eves-secret-job", account="other"),
        a_job(job_id="4", user="ann", name="anns-job", account="vision"),
    )
    person = a_person(BEN, vision)
    a_person(BEN, speech)
    a_person("ann@vision.example", vision)
    a_person("eve@other.example", other)
    for tenant, name in ((vision, "ben17"), (speech, "ben-s")):
        Membership.objects.filter(user=person, tenant=tenant).update(scheduler_users=[name])
    Authenticator.objects.create(user=person, type="totp", data={"secret": "the-seed-of-ben"})
    UserSession.objects.create(user=person, ip="192.0.2.17", user_agent="Firefox", session_key="key-of-ben")
    Notice.objects.create(
        tenant=vision, kind="invoice", key="n", state="sent", created_at=NOW, not_before=NOW, sent_at=NOW,
        to=[BEN, "ann@vision.example"], subject="Your invoice", text="Pay at https://portal.example/pay/link-of-lab/.",
    )  # fmt: skip
    with acting_as(BEN, why="A new address"):
        vision.city = "Potsdam"
        vision.save()
    return person


@pytest.fixture
def ben() -> User:
    return ben_of_two_labs()


def export(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], list[dict[str, str]], str]:
    """`person.json`, the rows of `jobs.csv`, and both as text."""
    file = tmp_path / "person.zip"
    call_command("export_person", arguments[0], str(file), *arguments[1:], "--json", stdout=StringIO())
    assert oct(file.stat().st_mode)[-3:] == "600"
    with ZipFile(file) as archive:
        person, jobs = (archive.read(name).decode() for name in ("person.json", "jobs.csv"))
    return json.loads(person), list(csv.DictReader(StringIO(jobs, newline=""))), person + jobs


@pytest.mark.usefixtures("ben")
def test_an_account_is_exported_with_its_jobs_and_without_secrets_and_others(tmp_path: Path) -> None:
    person, jobs, text = export(tmp_path, f" {BEN.upper()}")
    assert person["account"][0]["email"] == BEN
    assert [(row["tenant"], row["scheduler_users"]) for row in person["memberships"]] == [
        ("vision", ["ben17"]),
        ("speech", ["ben-s"]),
    ]
    assert [(row["tenant"], row["name"]) for row in jobs] == [
        ("vision", "'=bens-train"),
        ("speech", "bens-speech"),
    ]
    assert jobs[0]["started"].endswith(":00Z")  # and a name that a spreadsheet would run is disarmed
    assert person["sessions"][0]["ip"] == "192.0.2.17"
    assert person["second_factors"][0]["type"] == "totp"
    assert [row["subject"] for row in person["notices"]] == ["Your invoice"]
    assert ("tenants_tenant", "A new address") in [(row["table"], row["why"]) for row in person["changes"]]
    for word in (
        "link-of-lab",
        "the-seed",
        "key-of-ben",
        "md5$",
        "eves-secret",
        "ann@",
        "anns-job",
        "eve@",
        "Potsdam",
    ):
        assert word not in text


@pytest.mark.usefixtures("ben")
def test_a_user_name_is_exported_of_one_tenant(tmp_path: Path) -> None:
    person, jobs, text = export(tmp_path, "ben17", "--tenant", "other")
    assert [row["name"] for row in jobs] == ["eves-secret-job"]
    assert (BEN in text, set(person)) == (False, {"wallets", "idle_jobs", "service_credits"})


@pytest.mark.usefixtures("ben")
def test_what_cannot_be_packed_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(person_data, "_text", lambda value: {}[value])
    with pytest.raises(KeyError):
        export(tmp_path, BEN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ben")
def test_who_is_nobody_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"Nobody has an account as 'zoe@x.example'; of a user name, add --tenant\."
    ):
        export(tmp_path, "zoe@x.example")
    with pytest.raises(BadInputError, match=r"vision has no job of the user 'zoe'\."):
        export(tmp_path, "zoe", "--tenant", "vision")
    assert list(tmp_path.iterdir()) == []


def test_every_table_that_names_an_account_is_exported(ben: User) -> None:
    """A new table with a person in it has to be handed out, too, or to say why not."""
    naming = {
        model._meta.label
        for model in apps.get_models(include_auto_created=True)
        if any(field.related_model is User for field in model._meta.local_fields)
    }
    exported = {section.rows.model._meta.label for section in person_data.of_account(ben)}
    assert naming - exported == APART
