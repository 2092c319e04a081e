"""What stands under a person's name is handed out: all of it, without secrets, and without others' data."""

from __future__ import annotations

import csv
import json
import tracemalloc
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.core.management import call_command

from billing.models import Notice, QuotaBlock, WalletScope
from billing.wallets import wallet_terms
from billing.wallets.booking import Owner, wallet_of
from billing.wallets.grants import grant
from clusters.models import AccountBlock, Act, Cluster
from portal.core.audit import acting_as
from portal.core.tenants.models import Membership, Ownership, Tenant, User
from portal.ops import person_data
from portal.ops.cli import BadInputError
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.quota_stories import a_quota

pytestmark = pytest.mark.django_db

BEN = "ben@vision.example"
APART = {"tenants.User_groups", "tenants.User_user_permissions"}  # the operator's role says it
NOT_EXPORTED = {
    "billing.UsageSeries": "sums of the jobs",
    "billing.WalletTotal": "sums of the jobs, of which the wallet has entries",
    "clusters.UsageRecord": "what the jobs are rated from; of an account that no tenant owns it is nobody's",
    "clusters.UsageRevision": "what a record said before",
    "clusters.Connection": "whom ClusterTab signs in as",
    "clusters.Telemetry": "whom ClusterTab signs in as",
}
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
    assert BEN not in text
    assert set(person) == {
        "wallets", "wallet_entries", "budgets", "budget_blocks", "account_blocks", "acts", "idle_jobs",
        "service_credits", "billed_jobs", "jobs_not_here_are_of_months",
    }  # fmt: skip
    assert person["jobs_not_here_are_of_months"] == []


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
    with pytest.raises(BadInputError, match=r"vision has nothing under the user name 'zoe'\."):
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


def test_every_table_that_names_users_of_schedulers_is_exported_or_says_why_not(ben: User) -> None:
    naming = {
        model._meta.label
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if field.name == "user" and not field.is_relation
    }
    exported = {section.rows.model._meta.label for section in person_data.of_names({1: ["ben17"]})}
    assert naming - exported == NOT_EXPORTED.keys()
    assert "wallet_entries" in {section.name for section in person_data.of_person(ben)}


@pytest.mark.usefixtures("ben")
def test_budgets_blocks_acts_and_wallets_of_a_user_are_exported_of_the_tenant_that_had_the_account(
    tmp_path: Path,
) -> None:
    cluster = Cluster.objects.get()
    vision, speech = Tenant.objects.get(slug="vision"), Tenant.objects.get(slug="speech")
    quota = a_quota(vision, "bens", user="ben17")
    a_quota(vision, "anns", user="ann")
    when: dict[str, Any] = {"began_at": NOW, "next_at": NOW}
    QuotaBlock.objects.create(
        tenant=vision, quota=quota, account=cluster.accounts.get(name="vision"), submits=False, user="ben17",
        state="blocked", **when,
    )  # fmt: skip
    for user, account in (("ben17", "vision"), ("ann", "vision"), ("ben17", "other")):
        act = Act.objects.create(
            cluster=cluster, kind="block", target=f"{user} in {account}", account=account, user=user, errand=uuid4(),
            who="anns-operator", before={}, intended={}, intended_at=NOW,
        )  # fmt: skip
        AccountBlock.objects.create(cluster=cluster, account=account, user=user, limits={}, blocked_by=act)
    scheme = wallet_terms.set_scheme(
        tenant=vision, unit="USD", scope=WalletScope.USER, overdraft=0, since=at("2026-03-01")
    )
    for user, amount in (("ben17", 500), ("ann", 700)):
        grant(
            wallet=wallet_of(scheme, Owner(None, user)), amount=amount, key=user, who="op", why="", moment=NOW
        )

    person, _, text = export(tmp_path, BEN)
    assert [(row["tenant"], row["name"], row["user"]) for row in person["budgets"]] == [
        ("vision", "bens", "ben17")
    ]
    (block,) = person["budget_blocks"]
    assert (block["cluster"], block["account"], block["user"]) == ("gpu1", "vision", "ben17")
    for name in ("acts", "account_blocks"):
        assert [(row["account"], row["user"]) for row in person[name]] == [("vision", "ben17")], name
    assert {row["amount"] for row in person["wallet_entries"]} == {500, -500}
    assert "anns" not in text
    Ownership.objects.filter(tenant=vision).update(until=NOW - timedelta(days=1))
    Ownership.objects.create(
        tenant=speech, project=speech.projects.get(), account=cluster.accounts.get(name="vision"),
        since=NOW - timedelta(days=1),
    )  # fmt: skip
    assert export(tmp_path, BEN)[0]["acts"] == []  # he has another name there


def test_e_mails_and_jobs_of_a_person_are_found_by_indexes(ben: User) -> None:
    """Else it would read what all tenants have: e-mails go by their addresses, jobs by their tenants and kinds."""
    cluster = Cluster.objects.get()
    others = (a_job(job_id=f"other-{number}", account="other") for number in range(1_000))
    ingest(cluster, *others)
    notice = Notice.objects.get()
    Notice.objects.bulk_create(
        Notice(
            tenant=notice.tenant, kind="invoice", key=str(number), created_at=NOW, not_before=NOW,
            to=[f"{number}@vision.example"],
        )
        for number in range(1_000)
    )  # fmt: skip
    with as_owner() as cursor:  # whoever does not own a table only gets a warning from ANALYZE
        cursor.execute("ANALYZE billing_ratedjob, billing_notice")
        cursor.execute("SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off")
    plans = {section.name: section.rows.explain() for section in person_data.of_person(ben)}
    assert "notices_by_address" in plans["notices"]
    assert "BitmapOr" in plans["jobs"]


def test_what_is_packed_is_held_a_few_rows_at_a_time(ben: User, tmp_path: Path) -> None:
    notice = Notice.objects.get()
    Notice.objects.bulk_create(
        Notice(
            tenant=notice.tenant, kind="invoice", key=str(number), state="sent", created_at=NOW, not_before=NOW,
            sent_at=NOW, to=[BEN], subject="Invoice", text=f"{number} {'x' * 10_000}",
        )
        for number in range(3_000)
    )  # fmt: skip
    parts = [section for section in person_data.of_person(ben) if section.name == "notices"]
    tracemalloc.start()
    try:
        counts = person_data.write(parts, tmp_path / "person.zip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts == {"notices": 3_001, "jobs": 0}
    assert peak < 15 << 20  # of 30 MB
    with ZipFile(tmp_path / "person.zip") as archive:
        assert len(json.loads(archive.read("person.json"))["notices"]) == 3_001
