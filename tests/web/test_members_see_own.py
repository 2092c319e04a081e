"""A tenant whose members see their own jobs and the totals of their projects: on every page, and by keys of theirs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection

from billing.models import (
    DayTotal,
    Invoice,
    PeriodTotal,
    QuotaEvery,
    QuotaMeasure,
    RatedJob,
    RatedUsage,
    UsageSeries,
)
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from portal.api import identifiers
from portal.config_file.apply import apply
from portal.config_file.schema import parse
from portal.core.audit.models import AuditEntry
from portal.core.tenants import ownership, team
from portal.core.tenants.access import Action, entered
from portal.core.tenants.models import Membership, OperatorRole, Project
from portal.core.tenants.scope import tenant_scope
from tests import builders, sharing
from tests.api.door import door
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_access import ACTS, TENANTS, address

pytestmark = pytest.mark.django_db

ZOE, SECRET = "zoe-lin", "moonshot"
OWN = {
    *("", "costs/", "costs/csv", "search/", "live/", "status/", "jobs/", "jobs/csv", "quote/"),
    *("jobs/<int:record>/", "team/", "notifications/"),
}
"""The pages that show what is the reader's own, or nobody's usage; all others are not there for Ben."""
SHOWN = {f"t/<slug:slug>/{rest}" for rest in OWN}


def a_house_of_two_projects() -> House:
    """Ben runs 17; 18 is Ada's; Zoe ran 41 in Ben's project, and 42 in one that he has nothing to do with."""
    house = a_house()
    account = house.cluster.accounts.create(name="hidden")
    ownership.assign(account=account, tenant=house.vision, project=SECRET)
    times = {"started": "2026-03-04 10:00", "ended": "2026-03-04 14:00", "user": ZOE}
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="41", name="zoes-first", **times),
        builders.a_job(job_id="42", name="zoes-second", account="hidden", **times),
        as_of="2026-04-20",
    )
    Membership.objects.filter(user=house.ben).update(scheduler_users=["ben"])
    return house


begun, house = sharing.fixtures(a_house_of_two_projects, "house")


def limited(house: House) -> None:
    change = {"act": "member_view", "own": "yes"}
    done = signed_in(house.ann).post("/t/vision-lab/team/change/", change, follow=True)
    assert "see their own jobs" in done.text


def test_each_page_shows_ben_his_own_or_is_not_there(house: House) -> None:
    for path in ("/t/vision-lab/jobs/", "/t/vision-lab/costs/?by=user&from=2026-03-01&through=2026-03-31"):
        assert ZOE in page(house.ben, path)  # as long as nobody limits it
    limited(house)
    ben, texts = signed_in(house.ben), {}
    for route in TENANTS:
        if route in ACTS:
            continue
        response = ben.get(address(route, house))
        assert (route, response.status_code) == (route, 200 if route in SHOWN else 404)
        if response.status_code == 200:
            raw = b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]
            texts[route] = raw.decode()
    for route, text in texts.items():
        for other in (ZOE, "zoes-", "speech", SECRET):
            assert other not in text, (route, other)
    secret = house.vision.projects.get(name=SECRET)
    assert ben.get(f"/t/vision-lab/jobs/?project={secret.pk}").status_code == 404
    assert SECRET in page(house.ann, "/t/vision-lab/jobs/")
    assert SECRET in page(house.ann, "/t/vision-lab/costs/")
    for job in ("18", "41", "42"):
        assert ben.get(f"/t/vision-lab/jobs/{house.record(job)}/").status_code == 404
        assert ">No" in page(house.ben, f"/t/vision-lab/search/?q={job}") or job == "18"
    assert "train" in page(house.ben, "/t/vision-lab/jobs/?sort=cost&period=2026-03-01")
    table = page(house.ben, "/t/vision-lab/jobs/csv")
    assert [line.split(",")[0] for line in table.splitlines()[1:]] == ["17"]
    costs = page(house.ben, "/t/vision-lab/costs/?by=user&from=2026-03-01&through=2026-03-31")
    assert "$12.00" in costs
    assert "$20.00" not in costs
    assert "$8.00" not in page(
        house.ben, f"/t/vision-lab/costs/?user={ZOE}&from=2026-03-01&through=2026-03-31"
    )
    overview = page(house.ben, "/t/vision-lab/?period=2026-03-01")
    assert "$21.00" in overview  # 6 + 0.5 + 4 GPU-hours of everybody in his project, at 2.00
    assert SECRET not in overview
    assert "Wallets" not in overview
    assert ZOE in page(house.ann, "/t/vision-lab/jobs/")  # an owner sees all, and so does who pays
    assert ZOE in page(house.carla, "/t/vision-lab/jobs/")
    Membership.objects.filter(user=house.ben).update(scheduler_users=[])
    assert "No user name of the clusters is linked to you" in page(house.ben, "/t/vision-lab/jobs/")


def test_a_key_of_ben_reads_no_more_than_he_does(house: House) -> None:
    key = door(house.ben, house.vision)
    assert len(key.all("/jobs")) == 4
    limited(house)
    (job,) = key.all("/jobs")
    assert job["user"] == "ben"
    assert key.get(f"/jobs/{identifiers.write('job', house.record('41'))}").status == 404
    march = "/usage?from=2026-03-01&to=2026-04-01&interval=month&group_by="
    (bucket,) = key.reads(f"{march}user")["buckets"]
    assert [group["group"]["user"] for group in bucket["groups"]] == ["ben"]
    (bucket,) = key.reads(f"{march}project")["buckets"]
    assert [group["group"]["project"] for group in bucket["groups"]] == ["vision"]
    (bucket,) = key.reads(f"{march}project,user")["buckets"]
    assert ZOE not in str(bucket)
    for path in ("/forecast", "/idle-jobs", "/quotas"):
        assert key.get(path).status == 403
    change = "/usage/change?earlier_from=2026-02-01&earlier_to=2026-03-01&from=2026-03-01&to=2026-04-01&group_by=user"
    assert key.get(change).problem == (403, "own-usage")
    assert len(door(house.ann, house.vision).all("/jobs")) == 4
    service = door(house.ann, house.vision, "jobs:read", is_service=True)
    assert len(service.all("/jobs")) == 4


def test_the_calculator_names_ben_no_account_and_no_project_of_others(house: House) -> None:
    ownership.assign(
        account=house.cluster.accounts.create(name="a-first"), tenant=house.vision, project="a-team"
    )
    limited(house)
    job = {"hours": "1", "gpus": "1", "gpu_model": "a100"}
    ask = "/t/vision-lab/quote/?hours=1&gpus=1&gpu_model=a100&account="
    for account in ("", "vision"):
        text = page(house.ben, ask + account)
        assert "$2.00" in text
        assert "a-first" not in text
    for account in ("hidden", "missing"):  # the same refusal
        text = page(house.ben, ask + account)
        assert f"does not own the account &#x27;{account}&#x27; on &#x27;gpu1&#x27;" in text
        assert "$2.00" not in text
    key = door(house.ben, house.vision)
    quoted = key.writes("/quotes", job, status=200)
    assert (quoted["account"], quoted["project"]) == ("", "")
    quoted = key.writes("/quotes", job | {"account": "vision"}, status=200)
    assert (quoted["account"], quoted["project"]) == ("vision", "vision")
    assert key.post("/quotes", job | {"account": "hidden"}).status == 400
    assert "$2.00" in page(house.ann, ask + "hidden")


def test_the_database_keeps_what_is_not_bens_even_without_a_filter(house: House) -> None:
    limited(house)
    tenant, may = entered(user=house.ben, slug="vision-lab", action=Action.READ)
    assert may == {Action.READ}
    with tenant_scope(tenant):
        assert {*RatedJob.objects.values_list("user", flat=True)} == {"ben"}
        assert {*UsageSeries.objects.values_list("user", flat=True)} == {"ben"}
        assert {*RatedUsage.objects.values_list("record_id", flat=True)} == {house_record("17")}
        for totals in (PeriodTotal, DayTotal):
            assert {*totals.objects.values_list("project__name", flat=True)} == {"vision"}
        assert not Invoice.objects.exists()
        assert [project.name for project in Project.objects.all()] == ["vision"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM billing_periodtopjob")
            assert cursor.fetchone() == (0,)
            cursor.execute(DEFINERS)
            assert {name for (name,) in cursor.fetchall()} == {*MONTHS_IN_FILES, *OWN_IN_FILES, OWN_MEASURED}
            cursor.execute("SELECT name FROM billing_own_job_users()")
            assert {name for (name,) in cursor.fetchall()} <= {"ben"}
    Membership.objects.filter(user=house.ben).update(scheduler_users=[])
    tenant, _may = entered(user=house.ben, slug="vision-lab", action=Action.READ)
    with tenant_scope(tenant):
        assert not RatedJob.objects.exists()
    assert "No user name of the clusters is linked to you" in page(
        house.ben, "/t/vision-lab/?period=2026-03-01"
    )


MONTHS_IN_FILES = {
    "billing_dropped_months()",
    "billing_dropped_between(bigint,bigint)",
    "billing_dropped_of_periods(bigint[])",
    "billing_dropped_of_rows(bigint[],bigint[],bigint[])",
    "billing_late_records()",
}
"""They answer months, or numbers of records, alone, whoever asks."""
OWN_IN_FILES = {
    "billing_own_sealed_files(date[])",
    "billing_own_job_users()",
    "billing_own_rated_elsewhere(bigint[])",
    "billing_own_waived(bigint,bigint,bigint,bigint,bigint,bigint)",
}
"""They answer digests of the tenant's files, names of the reader's own, what its plan waives of given amounts, and
seconds of given records of the tenant's in dropped months, without a name: whose they are, their files alone say."""
OWN_MEASURED = "billing_own_measured(bigint)"
"""It answers what was measured of a job that the reader may see."""
DEFINERS = """
SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
  AND prorettype <> 'trigger'::regtype AND has_function_privilege(oid, 'EXECUTE')
"""
"""What would read with the rights of the tables' owner."""
READABLE = """
SELECT c.oid::regclass::text, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
  AND has_column_privilege(c.oid, a.attnum, 'SELECT')
GROUP BY c.oid
"""


def test_no_table_and_no_view_that_ben_may_read_tells_of_another_users_jobs(house: House) -> None:
    shape = {"user": ZOE, "cpu_milli": 4000, "memory_mib": 4096, "started": "2026-04-19 10:00", "ended": None}
    running = builders.a_job(
        job_id="43", name="zoes-third", state="RUNNING", seen_until="2026-04-19 12:00", **shape
    )
    hour = builders.busy(running.source_key, "2026-04-19 10:00", "1800")
    builders.ingest(house.cluster, running, hour, as_of="2026-04-20")
    terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(100), every=QuotaEvery.MONTH, user=ZOE)
    begun = builders.at("2026-04-01")
    quotas.set_quota(tenant=house.vision, name="zoes", terms=terms, by=Setter.OWNER, moment=begun)
    limited(house)
    others = {str(house.record(job)) for job in ("18", "41", "42", "43")}

    def telling() -> set[str]:
        tables = set()
        with connection.cursor() as cursor:
            cursor.execute(READABLE)
            for table, columns in cursor.fetchall():
                cursor.execute(f"SELECT {columns} FROM {table}")
                for row in cursor.fetchall():
                    if ZOE in str(row) or others & {str(value) for value in row}:
                        tables.add(table)
        return tables

    with tenant_scope(entered(user=house.ann, slug="vision-lab", action=Action.READ)[0]):
        views = {"billing_ownrun", "billing_openjob", "billing_ownhour", "billing_waivedpart"}
        assert {*views, "billing_ratedjob", "billing_quota"} <= telling()
    with tenant_scope(entered(user=house.ben, slug="vision-lab", action=Action.READ)[0]):
        assert telling() == set()


def house_record(job: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT record_id FROM billing_ratedjob WHERE job_id = %s", [job])
        (record,) = cursor.fetchone()
        return int(record)


def test_page_command_file_and_api_say_the_same_and_the_history_keeps_it(house: House) -> None:
    def is_own() -> bool:
        house.vision.refresh_from_db()
        return house.vision.members_see_own

    def text(own: str) -> str:
        return f'[[tenant]]\nslug = "vision-lab"\nname = "Vision Lab"\nmembers_see_own = {own}\n'

    limited(house)
    assert is_own()
    signed_in(house.ann).post("/t/vision-lab/team/change/", {"act": "member_view"})
    assert not is_own()
    call_command("set_member_view", "vision-lab", "own")
    assert is_own()
    apply(file=parse(text("false")))
    assert not is_own()
    assert [str(change) for change in apply(file=parse(text("true"))).changes] == [
        "tenant vision-lab: members_see_own nothing -> yes"
    ]
    op = door(house.op, None)
    assert op.reads("/tenants/vision-lab")["members_see_own"] is True
    assert op.send("PATCH", "/tenants/vision-lab", {"members_see_own": False}).status == 200
    assert not is_own()
    rows = AuditEntry.objects.filter(table="tenants_tenant", tenant_id=house.vision.pk, operation="update")
    kept = [row for row in rows if "members_see_own" in (row.after or {})]
    assert len(kept) == 6
    assert "members see own" in page(house.ann, "/t/vision-lab/history/").lower()
    assert signed_in(house.ben).post("/t/vision-lab/team/change/", {"act": "member_view"}).status_code == 404


def test_an_operator_who_is_a_member_sees_everything_as_operators_do(house: House) -> None:
    team.show_members_own(tenant=house.vision, own=True)
    house.ben.operator_role = OperatorRole.SUPPORT
    house.ben.save()
    assert ZOE in page(house.ben, "/t/vision-lab/jobs/")
