"""What has stood for its years is erased in slices; every sum, document and proof is as before."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from billing.models import Erasure, InvoiceDocument, Notice, NoticeState, RatedJob, WalletScope
from billing.wallets import wallet_terms
from billing.wallets.booking import Owner, wallet_of
from clusters.models import Quarantined
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Membership
from portal.ops import old_rows
from portal.ops.cli import BadInputError
from portal.ops.retention import years_before
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest, own
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
    (work,) = old_rows.JobUsers().slices(BEFORE)
    ingest(
        cluster,
        a_job(user="zoe.back", started="2026-05-02 10:00", ended="2026-05-02 12:00"),
        as_of="2026-05-03",
    )
    assert work() == 0
    assert set(RatedJob.objects.filter(tenant=tenant).values_list("user", flat=True)) == {"zoe.back"}


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
    for key, expires in (("old", old), ("new", NOW)):
        Session.objects.create(session_key=key, session_data="", expire_date=expires)
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


KINDS = ("notices", "sessions", "outbox", "quarantine")


def test_what_is_old_and_over_is_erased_and_what_waits_or_is_new_stays() -> None:
    rows_of_each_kind()
    for kind in KINDS:
        assert old_rows.count(kind=kind, before=BEFORE) == erase(kind) == 1, kind
        assert old_rows.count(kind=kind, before=BEFORE) == erase(kind) == 0, kind
    addresses = dict(Notice.objects.values_list("key", "to"))
    assert addresses == {"old": [], "waits": ["ann@vision.example"], "new": ["ann@vision.example"]}
    assert Notice.objects.get(key="old").text == "Due"
    assert set(Session.objects.values_list("session_key", flat=True)) == {"new"}
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
