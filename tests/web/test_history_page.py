"""Who changed what: Ann sees what concerns her tenant, Op everything, both with filters and as CSV."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import QuotaAction, QuotaBlock, QuotaBlockState
from clusters.models import Account
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.core.tenants import team
from portal.core.tenants.models import Membership, OperatorRole, Role, User
from portal.core.tenants.scope import acting_scope, tenant_scope
from portal.core.webhooks.models import Webhook
from portal.env import ROOT
from portal.web.history import TENANT_TABLES
from tests import builders, sharing
from tests.scenarios.test_quotas_count import a_quota
from tests.web.house import House, a_house, page, signed_in

pytestmark = pytest.mark.django_db

HISTORY, ALL = "/t/vision-lab/history/", "/operator/history/"
TEAM = "/t/vision-lab/team/change/"


begun, house = sharing.fixtures(a_house, "house")


def rows(text: str) -> list[str]:
    """Of the table, each as its text."""
    cells = re.findall(r"<tr>\s*<td.*?</tr>", text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in cells]


def changes_role(house: House, role: str = "viewer") -> None:
    member = Membership.objects.get(user=house.ben)
    signed_in(house.ann).post(TEAM, {"act": "role", "member": member.pk, "role": role})


def test_ann_sees_who_changed_what_before_and_after(house: House) -> None:
    changes_role(house)
    first = rows(page(house.ann, HISTORY))[0]
    assert "ann@vision.example page /t/vision-lab/team/change/" in first
    assert first.endswith("Member ben@vision.example changed role: Member → Viewer")


def test_who_has_left_still_has_a_name_there(house: House) -> None:
    member = Membership.objects.get(user=house.ben)
    signed_in(house.ann).post(TEAM, {"act": "remove", "member": member.pk})
    first = rows(page(house.ann, HISTORY))[0]
    assert "Member ben@vision.example removed" in first
    assert "user: ben@vision.example" in first


def test_names_stand_for_numbers(house: House) -> None:
    text = page(house.ann, HISTORY + "?table=tenants_ownership")
    assert "account: gpu1/vision" in rows(text)[0]
    assert "project: vision" in rows(text)[0]
    assert "vision-deal" in rows(page(house.ann, HISTORY + "?table=billing_subscription"))[0]


def test_filters_narrow_and_odd_ones_are_left_out(house: House) -> None:
    changes_role(house)
    assert len(rows(page(house.ann, HISTORY + "?table=tenants_membership&who=ANN"))) == 1
    assert "No change found" in page(house.ann, HISTORY + "?who=nobody")
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date()
    assert "No change found" in page(house.ann, HISTORY + f"?since={tomorrow}")
    assert rows(page(house.ann, HISTORY + f"?until={tomorrow}"))
    everything = rows(page(house.ann, HISTORY))
    odd_ones = ("?since=&until=", "?before=abc", "?table=billing_invoice", "?who=%00")
    for odd in (*odd_ones, "?before=9" + "9" * 17):
        assert rows(page(house.ann, HISTORY + odd)) == everything, odd


@pytest.mark.parametrize("day", ["2026-13-45", "x", "0001-01-01"])
def test_a_day_that_is_none_is_named_beside_its_field_and_shows_no_change(house: House, day: str) -> None:
    for person, address in ((house.ann, HISTORY), (house.op, ALL)):
        text = page(person, f"{address}?since={day}&until=2026-05-01")
        field = text.partition('id="since"')[2].partition("</div>")[0]
        assert "Enter the day like 2026-03-01, in the years 1971 to 8999." in field
        assert text.count("invalid-feedback") == 1
        assert rows(text) == []
        assert signed_in(person).get(f"{address}csv?since={day}").status_code == 404


def test_older_changes_are_behind_a_button(house: House) -> None:
    for number in range(30):
        changes_role(house, "viewer" if number % 2 == 0 else "billing")
    text = page(house.ann, HISTORY + "?who=ann")
    assert len(rows(text)) == 30
    for number in range(30):
        changes_role(house, "viewer" if number % 2 == 0 else "billing")
    text = page(house.ann, HISTORY + "?who=ann")
    assert len(rows(text)) == 50
    found = re.search(r'href="([^"]+before=[^"]+)"', text)
    assert found is not None
    assert len(rows(page(house.ann, found[1].replace("&amp;", "&")))) == 10


def test_ann_sees_who_set_a_budget_what_it_blocked_and_who_changed_a_webhook(house: House) -> None:
    with acting_as("carla@vision.example"):
        quota = a_quota(house.vision, "gpu-budget", action=QuotaAction.NO_GPU_JOBS)
        a_quota(house.vision, "gpu-budget", action=QuotaAction.NO_GPU_JOBS, amount=Decimal(2000))
    block = QuotaBlock.objects.create(
        tenant=house.vision,
        quota=quota,
        account=Account.objects.get(name="vision"),
        submits=False,
        state=QuotaBlockState.REQUESTED,
        began_at=datetime.now(UTC),
        next_at=datetime.now(UTC),
    )
    QuotaBlock.objects.filter(pk=block.pk).update(tries=1, error="slurmrestd at 10.0.0.7 refused")
    added, changed = reversed(rows(page(house.ann, HISTORY + "?table=billing_quota")))
    assert "carla@vision.example" in added
    assert "Budget gpu-budget added" in added
    assert "amount: 1,000 → 2,000" in changed
    (blocked,) = rows(page(house.ann, HISTORY + "?table=billing_quotablock"))
    assert "Block by a budget gpu1/vision added" in blocked
    assert "quota: gpu-budget" in blocked
    webhook = house.webhook
    sealed = [str(webhook.secret), *Webhook.objects.values_list("secret", flat=True)]
    signed_in(house.ann).post("/t/vision-lab/webhooks/change/", {"act": "off", "webhook": "hook"})
    added, *rest = reversed(rows(page(house.ann, HISTORY + "?table=webhooks_webhook")))
    assert "Webhook hook added" in added
    assert "maker: ann@vision.example" in added
    assert [row for row in rest if "state: Active → Turned off" in row]
    text = signed_in(house.ann).get(HISTORY + "csv").text + page(house.ann, HISTORY)
    assert "10.0.0.7" not in text
    assert "secret" not in text
    assert not [secret for secret in sealed if str(secret) in text]


def test_only_owners_see_it_and_only_their_own(house: House) -> None:
    changes_role(house)
    for person in (house.carla, house.eve, house.op):
        assert signed_in(person).get(HISTORY).status_code == 404
        assert signed_in(person).get(HISTORY + "csv").status_code == 404
    text = page(house.eve, "/t/speech-lab/history/")
    assert "ben@vision.example" not in text
    assert "vision" not in " ".join(rows(text))


def test_the_database_shows_a_tenant_no_other_history_and_no_reason(house: House) -> None:
    changes_role(house)
    eves = str(Membership.objects.get(user=house.eve).pk)
    with tenant_scope(house.vision):
        tables = {table for (table,) in AuditEntry.objects.values_list("table")}
        owners = {owner for (owner,) in AuditEntry.objects.values_list("tenant_id")}
    assert tables <= set(TENANT_TABLES)
    assert owners == {house.vision.pk}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM information_schema.column_privileges WHERE table_name = 'audit_entry' "
            "AND grantee = 'clustertab_portal' AND column_name = 'why'"
        )
        assert cursor.fetchone() == (0,)
    with acting_scope(house.vision), connection.cursor() as cursor:
        cursor.execute("SELECT email FROM history_people(%s)", [[house.eve.pk, house.ben.pk]])
        assert cursor.fetchall() == [(house.ben.email,)]
        cursor.execute("SELECT count(*) FROM history_beginnings(%s, %s)", [["tenants_membership"], [eves]])
        assert cursor.fetchone() == (0,)


def test_page_and_policy_have_one_list() -> None:
    text = (ROOT / "portal/schema/policies.sql").read_text()
    found = re.search(r'AND "table" IN \((.*?)\)\);', text, re.DOTALL)
    assert found is not None
    assert set(re.findall(r"'(\w+)'", found[1])) == set(TENANT_TABLES)


def test_op_sees_everything_with_the_reason_and_finds_a_tenants(house: House) -> None:
    call_command("pause_dunning", "vision-lab", why="they are talking to us")
    text = page(house.op, ALL)
    assert "they are talking to us" in rows(text)[0]
    assert "vision-lab" in rows(text)[0]
    of_speech = rows(page(house.op, ALL + "?tenant=speech-lab"))
    assert of_speech
    assert not any("vision-lab" in row for row in of_speech)
    assert "No change found" in page(house.op, ALL + "?tenant=nobody")
    cluster = User.objects.create_user("cora@cluster.example", operator_role=OperatorRole.CLUSTER)
    assert signed_in(cluster).get(ALL).status_code == 404
    assert ALL not in page(cluster, "/operator/clusters/")


def test_both_take_it_along_as_csv(house: House) -> None:
    changes_role(house)
    answer = signed_in(house.ann).get(HISTORY + "csv?table=tenants_membership")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="history-vision-lab.csv"'
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert len(lines) == 4
    assert (lines[0]["who"], lines[0]["row"], lines[0]["operation"]) == (
        "ann@vision.example",
        "ben@vision.example",
        "update",
    )
    assert (lines[0]["before"], lines[0]["after"]) == ('{"role": "member"}', '{"role": "viewer"}')
    everything = signed_in(house.op).get(ALL + "csv").content.decode()
    assert len(list(csv.DictReader(io.StringIO(everything)))) == AuditEntry.objects.count()


def test_no_secret_and_no_digest_is_shown(house: House) -> None:
    signed_in(house.ann).post(
        "/t/vision-lab/api-keys/change/", {"act": "create", "name": "export", "scopes": ["usage:read"]}
    )
    first = rows(page(house.ann, HISTORY))[0]
    assert "API key export added" in first
    assert "digest" not in first


def test_more_changes_need_no_more_queries(house: House) -> None:
    ann = signed_in(house.ann)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert ann.get(HISTORY).status_code == 200
        return len(captured)

    queries()
    before = queries()
    for number in range(5):
        builders.own(house.vision, house.cluster, f"more-{number}")
        team.add_member(
            tenant=house.vision, user=builders.a_person(f"p{number}@vision.example"), role=Role.MEMBER
        )
    assert queries() == before
    assert before <= 20
