"""What has stood for its years is erased in slices; every sum, document and proof is as before."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.documents import job_users
from billing.models import (
    EfficiencySnapshot,
    Erasure,
    InvoiceDocument,
    Notice,
    NoticeDelivery,
    NoticeState,
    OperatorDelivery,
    Quota,
    QuotaBlock,
    QuotaMeasure,
    RatedJob,
    WalletScope,
)
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.wallets import wallet_terms
from billing.wallets.booking import Owner, wallet_of
from clusters.models import Quarantined
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Membership
from portal.ops import old_rows
from portal.ops.cli import BadInputError
from portal.ops.retention import years_before
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, an_operator, at, ingest, own
from tests.owner import as_owner
from tests.quota_stories import a_quota
from tests.scenarios.real import run
from tests.scenarios.test_people_erased import tables_naming
from tests.stories import close, prove

pytestmark = pytest.mark.django_db

NOW = at("2036-05-01")
BEFORE = at("2026-04-01")


def erase(kind: str, before: datetime = BEFORE) -> int:
    return old_rows.erase(kind=kind, before=before, moment=NOW, reason="Yearly")


def answer(*arguments: str) -> Any:
    return run("erase_old", "--why", "Yearly", *arguments)


def test_names_of_users_whose_jobs_all_ended_before_become_numbers_and_every_sum_stays() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    other = a_tenant("speech-lab", plan=a_plan("speech"), accounts=[(cluster, "speech")])
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 11:00"}
    april = {"started": "2026-04-02 10:00", "ended": "2026-04-02 11:00"}
    ingest(
        cluster,
        a_job(job_id="1", user="zoe.gone", **march),
        a_job(job_id="2", user="ben.works", **march),
        a_job(job_id="3", user="ben.works", **april),
        a_job(job_id="4", user="ida.member", **march),
        a_job(
            job_id="5",
            user="kim.runs",
            state="RUNNING",
            started="2026-03-02 10:00",
            ended=None,
            seen_until="2026-03-02 11:00",
        ),
        a_job(job_id="6", user="eve.gone", account="speech", **march),
        as_of="2026-05-02",
    )
    person = a_person("ida@vision.example", tenant)
    Membership.objects.filter(user=person).update(scheduler_users=["ida.member"])
    close("2026-03", tenant, other, on="2026-05-03", accept="Kim's job runs")
    sums = prove()
    documents = list(InvoiceDocument.objects.order_by("pk").values_list("sha256", flat=True))

    assert old_rows.count(kind="job-users", before=BEFORE) == 2
    assert erase("job-users") == 2
    assert erase("job-users") == old_rows.count(kind="job-users", before=BEFORE) == 0
    assert tables_naming("zoe.gone") == tables_naming("eve.gone") == set()
    assert {"ben.works", "ida.member", "kim.runs"} <= set(RatedJob.objects.values_list("user", flat=True))
    assert prove() == sums
    assert list(InvoiceDocument.objects.order_by("pk").values_list("sha256", flat=True)) == documents
    assert Erasure.objects.get().rows == 2
    assert AuditEntry.objects.of_table(Erasure).count() == 2  # one for each slice, which is of one tenant


def test_whom_a_wallet_names_keeps_it_and_whom_a_member_named_once_is_erased_from_the_history() -> None:
    cluster, tenant = a_cluster(), a_tenant(plan=a_plan())
    own(tenant, cluster, "vision")
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 11:00"}
    ingest(cluster, a_job(user="zoe.gone", **march), a_job(user="kim.pays", **march), as_of="2026-05-02")
    member = Membership.objects.get(user=a_person("ida@vision.example", tenant))
    for names in (["ida", "zoe.gone"], ["ida"]):
        member.scheduler_users = names
        member.save()
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit="USD", scope=WalletScope.USER, overdraft=0, since=at("2026-03-01")
    )
    wallet_of(scheme, Owner(None, "kim.pays"))
    assert erase("job-users") == 1
    assert tables_naming("zoe.gone") == set()
    assert RatedJob.objects.filter(user="kim.pays").exists()


def test_the_history_is_read_once_and_a_city_of_the_same_name_stays_in_it() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 11:00"}
    ingest(cluster, a_job(user="florence", **march), a_job(user="zoe.gone", **march), as_of="2026-05-02")
    for city in ("florence", "Potsdam"):
        tenant.city = city
        tenant.save()
    with CaptureQueriesContext(connection) as queries:
        assert erase("job-users") == 2
    assert len([query for query in queries if "audit_erase" in query["sql"]]) == 1
    changes = [entry.changes for entry in AuditEntry.objects.of(tenant)]
    assert [("city", "florence", "Potsdam")] in changes


def test_whom_a_standing_budget_names_stays_and_of_ended_budgets_and_blocks_names_are_erased() -> None:
    cluster, tenant = a_cluster(), a_tenant(plan=a_plan())
    own(tenant, cluster, "vision")
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 11:00"}
    ingest(cluster, *(a_job(user=user, **march) for user in ("zoe.gone", "kim.spends")), as_of="2026-05-02")
    hours: dict[str, Any] = {"measure": QuotaMeasure.GPU_HOURS}
    zoes = a_quota(tenant, "zoes", user="zoe.gone", **hours)
    kims = a_quota(tenant, "kims", user="kim.spends", **hours)
    block = QuotaBlock.objects.create(
        tenant=tenant, quota=zoes, account=cluster.accounts.get(), submits=False, holds=True, user="zoe.gone",
        state="blocked", why="budget zoes of vision-lab", began_at=at("2026-03-03"), next_at=at("2026-03-03"),
    )  # fmt: skip
    quotas.end_quota(tenant=tenant, name="zoes", by=Setter.OPERATOR, moment=at("2026-03-04"))
    assert erase("job-users") == 0  # the block has to be lifted yet
    QuotaBlock.objects.update(state="lifted", ended_at=at("2026-03-05"))

    assert erase("job-users") == 1
    assert tables_naming("zoe.gone") == set()
    for row in (zoes, kims, block):
        row.refresh_from_db()
    assert zoes.user == block.user == RatedJob.objects.exclude(user="kim.spends").get().user
    assert kims.user == "kim.spends"
    ended = AuditEntry.objects.of_table(Quota).filter(key=str(zoes.pk)).latest("pk")
    assert ended.changes == [("user", "(erased)", zoes.user)]


def test_jobs_of_one_tenant_are_read_by_its_indexes() -> None:
    """There is one for jobs and one for sums of meters: without them each slice would read the jobs of all tenants."""
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    a_tenant("speech-lab", plan=a_plan("speech"), accounts=[(cluster, "speech")])
    march = {"started": "2026-03-02 10:00", "ended": "2026-03-02 12:00"}
    others = (a_job(job_id=str(number), account="speech", **march) for number in range(1_000))
    ingest(cluster, a_job(job_id="zoes", user="zoe.gone", **march), *others, as_of="2026-05-02")
    with CaptureQueriesContext(connection) as queries:
        job_users.list_inactive(BEFORE, tenant_id=tenant.pk, names=["zoe.gone"])
        job_users.erase_users(tenant, names=["zoe.gone"])
        job_users.erase_users(tenant)
    texts = [query["sql"].rpartition(";")[2] for query in queries]  # before it a trigger is turned off
    read = [text for text in texts if re.search("(FROM|UPDATE) billing_ratedjob", text)]
    assert len(read) == 6
    for statement in read:
        assert re.search(r"meter = ''\s+OR .*meter <> ''", statement, re.DOTALL), statement
    with as_owner() as cursor:  # whoever does not own a table only gets a warning from ANALYZE
        cursor.execute("ANALYZE billing_ratedjob")
        cursor.execute("SET LOCAL enable_bitmapscan = on; SET LOCAL enable_seqscan = off")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {read[0]}")
        assert "BitmapOr" in " ".join(row for (row,) in cursor)


def test_a_run_of_two_tenants_keeps_its_name_until_both_have_erased_it() -> None:
    cluster = a_cluster()
    tenant, other = a_tenant(plan=a_plan()), a_tenant("speech-lab", plan=a_plan("speech"))
    own(tenant, cluster, "vision", until="2026-03-02 11:00")
    own(other, cluster, "vision", since="2026-03-02 11:00")
    ran = a_job(user="zoe.gone", started="2026-03-02 10:00", ended="2026-03-02 12:00")
    ingest(cluster, ran, as_of="2026-05-02")
    assert RatedJob.objects.filter(user="zoe.gone").count() == 2
    assert erase("job-users") == 2
    assert tables_naming("zoe.gone") == set()


def test_whoever_comes_back_while_it_runs_keeps_the_name() -> None:
    cluster = a_cluster()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ran = a_job(user="zoe.back", started="2026-03-02 10:00", ended="2026-03-02 12:00")
    ingest(cluster, ran, as_of="2026-05-02")
    EfficiencySnapshot.objects.create(tenant=tenant, since=0)
    (work,) = old_rows.JobUsers().slices(BEFORE)
    ingest(
        cluster,
        a_job(user="zoe.back", started="2026-05-02 10:00", ended="2026-05-02 12:00"),
        as_of="2026-05-03",
    )
    assert work() == 0
    assert set(RatedJob.objects.filter(tenant=tenant).values_list("user", flat=True)) == {"zoe.back"}
    assert EfficiencySnapshot.objects.exists()  # whose sums are still of the same names


def rows_of_each_kind() -> None:
    tenant, cluster, old = a_tenant(), a_cluster(), at("2026-03-01")
    notices = [
        ("old", NoticeState.SENT, old),
        ("waits", NoticeState.WAITING, old),
        ("new", NoticeState.SENT, NOW),
    ]
    for key, state, created in notices:
        Notice.objects.create(
            tenant=tenant, kind="invoice", key=key, state=state, created_at=created, not_before=created,
            sent_at=created, to=["ann@vision.example"], subject="Invoice", text="Due",
            refused={"ann@vision.example": "550"},
        )  # fmt: skip
    ann, op = a_person("ann@vision.example", tenant), an_operator()
    for notice in Notice.objects.all():
        sent: dict[str, Any] = {
            "notice": notice, "created_at": notice.created_at, "not_before": notice.created_at, "sent_at": NOW,
            "state": notice.state, "waits_for": "digest", "subject": "Digest",
        }  # fmt: skip
        NoticeDelivery.objects.create(tenant=tenant, user=ann, **sent)
        OperatorDelivery.objects.create(user=op, **sent)
    for key, expires in (("old", old), ("new", NOW)):
        Session.objects.create(session_key=key, session_data="", expire_date=expires)
        UserSession.objects.create(
            user=ann, session_key=key, ip="192.0.2.17", user_agent="Firefox", last_seen_at=expires
        )
    for done in (old, NOW, None):
        OutboxMessage.objects.create(
            task="tests.x", kwargs={}, created_at=old, available_at=old, done_at=done
        )
    for digest, resolved in (("a", old), ("b", NOW), ("c", None)):
        Quarantined.objects.create(
            cluster=cluster,
            code="x",
            raw="zoe|17",
            digest=digest,
            first_seen=old,
            last_seen=old,
            resolved_at=resolved,
        )


KINDS = {"notices": 1, "deliveries": 2, "sessions": 2, "outbox": 1, "quarantine": 1}


def test_what_is_old_and_over_is_erased_and_what_waits_or_is_new_stays() -> None:
    rows_of_each_kind()
    assert {"job-users", *KINDS} == {*old_rows.ERASABLE}
    for kind, rows in KINDS.items():
        assert old_rows.count(kind=kind, before=BEFORE) == erase(kind) == rows, kind
        assert old_rows.count(kind=kind, before=BEFORE) == erase(kind) == 0, kind
    addresses = dict(Notice.objects.values_list("key", "to"))
    assert addresses == {"old": [], "waits": ["ann@vision.example"], "new": ["ann@vision.example"]}
    assert Notice.objects.get(key="old").text == "Due"
    for deliveries in (NoticeDelivery.objects, OperatorDelivery.objects):
        assert set(deliveries.values_list("notice__key", flat=True)) == {"waits", "new"}
    for sessions in (Session.objects, UserSession.objects):
        assert set(sessions.values_list("session_key", flat=True)) == {"new"}
    assert OutboxMessage.objects.filter(task="tests.x").count() == 2
    assert dict(Quarantined.objects.values_list("digest", "raw")) == {"a": "", "b": "zoe|17", "c": "zoe|17"}


@pytest.mark.parametrize("after", range(4))
def test_what_a_kill_leaves_the_next_call_erases_and_the_history_counts_both(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Each slice and its count commit together: an end between two of them is the only one there is."""
    for number in range(3):
        Session.objects.create(session_key=str(number), session_data="", expire_date=at("2026-03-01"))
    monkeypatch.setattr(old_rows, "SLICE", 1)
    save, saves = Erasure.save, iter(range(10))

    def killed(self: Erasure, *arguments: Any, **values: Any) -> None:
        if next(saves) == after:
            raise KeyboardInterrupt
        save(self, *arguments, **values)

    monkeypatch.setattr(Erasure, "save", killed)
    if after < 3:
        with pytest.raises(KeyboardInterrupt):
            erase("sessions")
    monkeypatch.setattr(Erasure, "save", save)
    erase("sessions")
    assert not Session.objects.exists()
    assert sum(Erasure.objects.values_list("rows", flat=True)) == 3


def test_the_command_counts_first_and_says_what_cannot_be(settings: Any) -> None:
    rows_of_each_kind()
    settings.CLUSTERTAB_RETENTION_YEARS = {}
    with pytest.raises(
        BadInputError, match="RETENTION_YEARS is not set, so everything stays: give years to job-users"
    ):
        answer()
    settings.CLUSTERTAB_RETENTION_YEARS = {"invoices": 3}
    with pytest.raises(
        BadInputError, match="'invoices' is no kind that can be erased; there are job-users, notices"
    ):
        answer()
    settings.CLUSTERTAB_RETENTION_YEARS = {"sessions": 1}
    with pytest.raises(BadInputError, match="RETENTION_YEARS has no years for outbox"):
        answer("--kind", "outbox")
    Session.objects.update(expire_date=at("2020-01-01"))
    counted = answer("--dry-run")
    assert (counted["dry_run"], [row["rows"] for row in counted["kinds"]]) == (True, [2])
    assert Session.objects.count() == 2
    erased = answer("--yes")
    assert [(row["kind"], row["rows"]) for row in erased["kinds"]] == [("sessions", 2)]
    assert not Session.objects.exists()
    entry = AuditEntry.objects.of_table(Erasure).get()
    assert (entry.why, (entry.after or {})["rows"]) == ("Yearly", 2)


def test_years_are_counted_in_calendar_years() -> None:
    assert years_before(at("2028-02-29"), 1) == at("2027-02-28")
    assert years_before(at("2028-02-29"), 4) == at("2024-02-28")
    assert years_before(at("2028-05-31"), 10) == at("2018-05-31")
    assert NOW - years_before(NOW, 1) == timedelta(days=366)
