"""Op acts where the object is: each act is previewed, confirmed as it was seen, and kept in the history."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from billing.models import Invoice, RatedJob, WalletGrant, WriteOff
from billing.rating import engine
from clusters import enforcement_plan
from clusters.models import Act, Quarantined
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.access import OPERATOR_RIGHTS, Right
from portal.core.tenants.models import OperatorRole, Ownership, User
from portal.core.tenants.suggestions import suggest_tenants
from tests import builders
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.web.house import House, a_house, page, plan, signed_in
from tests.web.test_overview import words

TENANT = "/operator/tenants/vision-lab/"
INVOICE_ACTS = ("credit", "write-off", "write-off/reverse")
TENANT_ACTS = {
    "suspend": Right.JOBS,
    "resume": Right.JOBS,
    "grant": Right.CREDITS,
    "tokens": Right.CREDITS,
    "plan": Right.TENANTS,
    "billing": Right.TENANTS,
}


@pytest.fixture
def house(db: None) -> House:
    return a_house()


def preview(op: Client, path: str, **fields: str) -> str:
    answer = op.post(path, {"act": "preview", **fields})
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def seen_in(html: str) -> str:
    match = re.search(r'name="seen" value="([0-9a-f]+)"', html)
    assert match is not None, words(html)
    return match[1]


def confirm(op: Client, path: str, seen: str, **fields: str) -> str:
    answer = op.post(path, {"act": "confirm", "seen": seen, **fields}, follow=True)
    assert answer.status_code == 200
    return words(answer.content.decode())


def do(op: Client, path: str, **fields: str) -> str:
    return confirm(op, path, seen_in(preview(op, path, **fields)), **fields)


def test_an_invoice_is_credited_by_line_or_amount_and_never_twice_by_a_double_click(house: House) -> None:
    op, number = signed_in(house.op), house.invoice.number
    path = f"{TENANT}invoices/{number}/credit/"
    invoice_page = page(house.op, f"/t/vision-lab/invoices/{number}/")
    assert f'href="{path}"' in invoice_page
    assert path not in page(house.ann, f"/t/vision-lab/invoices/{number}/")

    fields = {"line": "1", "net": "2.50", "why": "a slow node"}
    html = preview(op, path, **fields)
    assert "a credit note over 2.50 USD. The tenant has 2.50 less to pay." in words(html)
    assert Invoice.objects.filter(original=house.invoice).count() == 0
    assert "is credited by" in confirm(op, path, seen_in(html), **fields)
    assert "It changed since the preview" in confirm(op, path, seen_in(html), **fields)
    assert [note.total for note in Invoice.objects.filter(original=house.invoice)] == [-250]
    entry = AuditEntry.objects.of(Invoice.objects.get(original=house.invoice)).first()
    assert entry is not None
    assert (entry.who, entry.why) == ("op@cluster.example", "a slow node")

    for bad, sentence in (
        ({"net": "2.505"}, "is finer than USD is counted"),
        ({"net": "two"}, "two"),
        ({"net": "99"}, "10.50"),
        ({"why": ""}, "Give a reason"),
        ({"line": "7"}, "7"),
        ({"line": "x"}, "Choose a line"),
    ):
        shown = words(preview(op, path, **{**fields, **bad}))
        assert sentence in shown, (bad, shown)
        assert 'name="seen"' not in shown


def test_what_is_due_is_written_off_and_due_again(house: House) -> None:
    op, number = signed_in(house.op), house.invoice.number
    path = f"{TENANT}invoices/{number}/write-off/"
    assert "13.00 USD of" in words(preview(op, path, why="bankrupt"))
    assert not WriteOff.objects.exists()
    assert "$13.00 of" in do(op, path, why="bankrupt")
    assert WriteOff.objects.get().reason == "bankrupt"
    assert f'href="{path}reverse/"' in page(house.op, TENANT)
    assert "is due again." in do(op, f"{path}reverse/", why="they paid after all")
    assert "Reverse write-off" not in page(house.op, TENANT)


def test_a_wallet_is_granted_credit_once_under_its_reference(house: House) -> None:
    wallet, op = house.wallet, signed_in(house.op)
    path = f"{TENANT}grant/"
    fields = {"wallet": str(wallet.pk), "amount": "25.00", "reference": "welcome", "why": "welcome"}
    assert "has $0.00, and $25.00 afterwards" in words(preview(op, path, **fields))
    assert not WalletGrant.objects.exists()
    assert "has $25.00 now" in do(op, path, **fields)
    again = preview(op, path, **fields)
    assert "Nothing to do Credit was given under this reference before" in words(again)
    assert 'value="confirm"' not in again
    assert "Choose a wallet" in words(preview(op, path, **{**fields, "wallet": "0"}))


def test_a_plan_is_changed_from_a_day_of_the_tenant_on(house: House) -> None:
    plan("next-deal", "3.00")
    op, path = signed_in(house.op), f"{TENANT}plan/"
    fields = {"plan": "next-deal", "since": "2026-05-01", "why": "asked for"}
    text = words(preview(op, path, **fields))
    assert "Vision Lab is on next-deal from 1 May 2026 on (UTC), instead of vision-deal." in text
    assert "next-deal" not in words(page(house.op, TENANT))
    assert "Vision Lab is on next-deal from 1 May 2026, 00:00." in do(op, path, **fields)
    assert OutboxMessage.objects.filter(task="billing.tasks.rate_tenants").exists()
    assert "is on next-deal then already" in words(preview(op, path, **fields))
    follows = words(preview(op, path, plan="speech-deal", since="2026-04-01"))
    assert "is on plan next-deal from 2026-05-01 00:00 UTC on" in follows
    assert "Enter the day like" in words(preview(op, path, plan="next-deal", since="soon"))


@pytest.mark.parametrize("length", [201, 255])
def test_an_account_with_a_long_name_is_assigned_to_a_project_of_its_beginning(
    house: House, length: int
) -> None:
    name = "a" * length
    builders.ingest(house.cluster, builders.a_job(account=name))
    fields = {"cluster": "gpu1", "account": name, "tenant": "vision-lab"}
    do(signed_in(house.op), "/operator/unassigned/assign/", **fields)
    assert Ownership.objects.get(account__name=name).project.name == "a" * 200


def test_no_account_has_a_longer_name_than_a_scheduler_may_give(house: House) -> None:
    fields = {"cluster": "gpu1", "account": "a" * 256, "tenant": "vision-lab", "project": "robots"}
    html = preview(signed_in(house.op), "/operator/unassigned/assign/", **fields)
    assert "No account’s name has more than 255 characters." in html


def test_an_account_is_assigned_to_the_tenant_that_its_name_suggests(house: House) -> None:
    builders.ingest(
        house.cluster,
        builders.a_job(account="vision-robots", started="2026-04-02 10:00", ended="2026-04-02 13:00"),
    )
    shown = page(house.op, "/operator/unassigned/")
    assert "probably Vision Lab" in words(shown)
    path = "/operator/unassigned/assign/"
    assert f"{path}?cluster=gpu1&amp;account=vision-robots" in shown
    op = signed_in(house.op)
    form = op.get(f"{path}?cluster=gpu1&account=vision-robots").content.decode()
    assert '<option value="vision-lab" selected>' in form

    fields = {"cluster": "gpu1", "account": "vision-robots", "tenant": "vision-lab", "since": "2026-04-02"}
    text = words(preview(op, path, **fields))
    assert (
        "vision-robots of gpu1 belongs to Vision Lab (project vision-robots) from 2 Apr 2026, 00:00" in text
    )
    assert not Ownership.objects.filter(account__name="vision-robots").exists()
    assert "belongs to Vision Lab" in do(op, path, **fields)
    row = Ownership.objects.get(account__name="vision-robots")
    engine.rate_accounts([row.account_id])  # as the worker does, whom the outbox wakes
    assert OutboxMessage.objects.filter(task="billing.tasks.rate_accounts").exists()
    assert "All usage is assigned" in page(house.op, "/operator/unassigned/")
    owned = words(preview(op, path, **{**fields, "tenant": "speech-lab", "since": ""}))
    assert "give a later moment since when" in owned
    assert "Enter a time like" in words(preview(op, path, **{**fields, "since": "2026-04-02T99:00"}))
    for edge in ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"):
        assert "in the years 1971 to 8999" in words(preview(op, path, **{**fields, "since": edge}))
    taken = {**fields, "tenant": "speech-lab", "since": "2026-04-05"}
    loses = "Vision Lab (project vision-robots) owns it until then, and "
    assert f"{loses}gives it up." in words(preview(op, path, **taken))
    html = preview(op, path, **taken, until="2026-04-09")
    assert f"{loses}has it back after the end." in words(html)
    do(op, path, **taken)
    moved = {**taken, "since": "2026-04-06", "tenant": "vision-lab"}
    assert "Speech Lab (project vision-robots) owns it" in words(preview(op, path, **moved))


def test_names_suggest_a_tenant_where_one_fits_best(house: House) -> None:
    tenants = [house.vision, house.speech]
    other = builders.a_cluster("gpu2")
    builders.own(house.speech, other, "zebra")
    found = suggest_tenants(["Vision_Lab", "speech-ml", "spech", "lab", "zebra", "physics", ""], tenants)
    assert {name: tenant.slug for name, tenant in found.items()} == {
        "Vision_Lab": "vision-lab",
        "speech-ml": "speech-lab",
        "zebra": "speech-lab",
    }


def test_a_quarantined_row_is_dismissed_with_a_reason_or_its_source_is_read_again(house: House) -> None:
    builders.ingest(house.cluster, *(builders.a_bad_row(raw=f"row-{n}") for n in range(3)))
    op, first = signed_in(house.op), Quarantined.objects.order_by("pk").first()
    assert first is not None
    path = f"/operator/quarantine/dismiss/?row={first.pk}"
    assert path in page(house.op, "/operator/quarantine/")
    assert "1 row dismissed." in do(op, path, why="a test")
    assert Quarantined.objects.filter(resolved_at=None).count() == 2
    assert op.get(path).status_code == 404
    assert "2 rows dismissed." in do(
        op, "/operator/quarantine/dismiss/?cluster=gpu1&code=truncated", why="all"
    )
    for nothing in ("", "?row=x", "?row=0", "?cluster=gpu1"):
        assert op.get(f"/operator/quarantine/dismiss/{nothing}").status_code == 404

    every = "/operator/quarantine/dismiss/?cluster=gpu1"
    builders.ingest(house.cluster, builders.a_bad_row(raw="row-7"))
    seen = seen_in(preview(op, every, why="all"))
    Quarantined.objects.filter(resolved_at=None).update(resolved_at=builders.at("2026-04-21"))
    builders.ingest(house.cluster, builders.a_bad_row(raw="row-8"))  # as many as before, and another one
    assert "It changed since the preview" in confirm(op, every, seen, why="all")
    assert "1 row dismissed." in do(op, every, why="this one")

    builders.ingest(house.cluster, builders.a_bad_row(raw="row-9"))
    row = Quarantined.objects.get(resolved_at=None)
    retry = preview(op, f"/operator/quarantine/{row.pk}/retry/")
    assert "import the file once more" in words(retry)
    assert 'value="confirm"' not in retry


@pytest.mark.parametrize("role", [OperatorRole.SUPPORT, OperatorRole.CLUSTER, OperatorRole.FINANCE])
def test_each_role_does_what_its_rights_say_and_sees_no_other_button(
    house: House, role: OperatorRole
) -> None:
    person = User.objects.create_user(f"{role}@cluster.example", builders.PASSWORD, operator_role=role)
    op, number = signed_in(person), house.invoice.number
    gives, acts = role == OperatorRole.FINANCE, role == OperatorRole.CLUSTER
    shown = page(person, TENANT)
    assert (f"{TENANT}plan/" in shown, f"{TENANT}suspend/" in shown) == (gives, acts)
    assert (f"invoices/{number}/credit/" in page(person, f"/t/vision-lab/invoices/{number}/")) == gives
    job = f"/t/vision-lab/jobs/{house.record('17')}/"
    assert ("Hold the waiting jobs of" in page(person, job)) == acts
    for path, right in {
        **{f"{TENANT}invoices/{number}/{act}/": Right.CREDITS for act in INVOICE_ACTS},
        **{f"{TENANT}{act}/": right for act, right in TENANT_ACTS.items()},
        f"{TENANT}jobs/{house.record('17')}/hold/": Right.JOBS,
        "/operator/unassigned/assign/": Right.TENANTS,
        "/operator/limits/": Right.TENANTS,
        f"/operator/quarantine/dismiss/?row={house.row.pk}": Right.IMPORTS,
        f"/operator/quarantine/{house.row.pk}/retry/": Right.IMPORTS,
        "/operator/clusters/gpu1/files/": Right.IMPORTS,
    }.items():
        assert op.get(path).status_code == 200, path
        answer = op.post(path, {"act": "preview", "line": "0", "why": "mine"}, follow=True)
        refused = "Your role does not allow this" in answer.content.decode()
        assert refused == (right not in OPERATOR_RIGHTS[role]), path
        assert ("Your role may look at this" in op.get(path).content.decode()) in {refused, False}, path
    assert not Invoice.objects.filter(original=house.invoice).exists()


def test_the_page_of_a_tenant_has_all_that_op_asks_about(house: House) -> None:
    house.wallet  # noqa: B018 - opened when it is asked for
    text = words(page(house.op, TENANT))
    for part in (
        "Vision Lab Active", "To pay $13.00 1 invoice, the first due 17 Apr 2026", "Plan vision-deal prices",
        house.invoice.number or "", "vision gpu1", "ann@vision.example Owner", "Wallets Vision Lab $0.00",
    ):  # fmt: skip
        assert part in text, (part, text)
    assert signed_in(house.ann).get(TENANT).status_code == 404
    assert signed_in(house.op).get("/operator/tenants/no-such-lab/").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_tenant_is_suspended_on_its_schedulers_and_resumed() -> None:
    with StandIn(44, world=a_world()) as slurm:
        cluster = connected(slurm)
        tenant = builders.a_tenant("vision-lab", accounts=[(cluster, "vision")])
        files = builders.a_cluster("files")
        builders.own(tenant, files, "vision")
        op = signed_in(builders.an_operator())

        path = f"{TENANT}suspend/"
        html = preview(op, path, why="fraud")
        assert "gpu1: Block" in words(html)
        assert "files:" in words(html)  # why nothing can be done there
        assert "Accounts that it is given later are not blocked by this." in words(html)
        assert (Act.objects.count(), gpus(slurm)) == (0, 8)
        assert "Vision Lab is suspended." in confirm(op, path, seen_in(html), why="fraud")
        assert gpus(slurm) == 0
        shown = words(op.get(TENANT).content.decode())
        assert "Vision Lab Suspended" in shown
        assert "Blocked accounts: gpu1 : vision" in shown
        assert 'value="confirm"' not in preview(op, path, why="again")
        assert "Give a reason" in words(preview(op, path))

        assert "Vision Lab is resumed." in do(op, f"{TENANT}resume/", why="paid")
        assert gpus(slurm) == 8
        assert "Vision Lab Active" in words(op.get(TENANT).content.decode())


@pytest.mark.django_db(transaction=True)
def test_a_job_is_cancelled_and_what_waits_beside_it_held_and_released() -> None:
    with StandIn(44, world=a_world()) as slurm:
        slurm.world.add(Job(11), Job(12, state="RUNNING", reason="None", started=1_772_000_100))
        cluster = connected(slurm)
        builders.a_tenant("vision-lab", accounts=[(cluster, "vision")])
        running = {"state": "RUNNING", "ended": None, "seen_until": "2026-03-02 12:00"}
        builders.ingest(cluster, builders.a_job(job_id="12", user="ben", **running))
        record = RatedJob.objects.get(job_id="12").record_id
        op, path = signed_in(builders.an_operator()), f"{TENANT}jobs/{record}/"
        for kind, text in (("hold", "Hold"), ("release", "Release"), ("cancel", "Cancel")):
            assert f'href="{path}{kind}/"' in op.get(f"/t/vision-lab/jobs/{record}/").content.decode()
            html = preview(op, f"{path}{kind}/", why="maintenance")
            assert f"{text} " in words(html)
            assert Act.objects.filter(kind=kind).count() == 0
            confirm(op, f"{path}{kind}/", seen_in(html), why="maintenance")
            act = Act.objects.get(kind=kind)
            assert (act.who, act.why, act.outcome) == ("op@cluster.example", "maintenance", "done")
        assert slurm.world.jobs[12].done
        assert op.get(f"{path}explode/").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_what_came_while_a_confirmation_is_carried_out_is_not_acted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look that compares with the preview and the act another job came, which nobody has seen."""
    with StandIn(44, world=a_world()) as slurm:
        slurm.world.add(Job(11))
        cluster = connected(slurm)
        builders.a_tenant("vision-lab", accounts=[(cluster, "vision")])
        builders.ingest(cluster, builders.a_job(job_id="9", user="ben"))
        record = RatedJob.objects.get(job_id="9").record_id
        op, path = signed_in(builders.an_operator()), f"{TENANT}jobs/{record}/hold/"
        opens = enforcement_plan.open_port

        def slow(**what: Any) -> Any:
            if looks.pop():
                slurm.world.add(Job(13))
            return opens(**what)

        looks = [True, False, False]  # from the last one on: the preview, the confirmation, its act
        monkeypatch.setattr(enforcement_plan, "open_port", slow)
        seen = seen_in(preview(op, path, why="maintenance"))
        confirm(op, path, seen, why="maintenance")
        assert [slurm.world.jobs[number].reason for number in (11, 13)] == ["JobHeldAdmin", "Priority"]


@pytest.mark.django_db(transaction=True)
def test_what_is_confirmed_several_times_at_once_is_done_once_and_the_others_are_told() -> None:
    house = a_house()
    ops = [signed_in(house.op) for _ in range(3)]
    grant = {"wallet": str(house.wallet.pk), "amount": "5.00", "reference": "welcome"}
    credit = {"line": "0", "net": "2.50", "why": "a slow node"}
    for path, fields in (
        (f"{TENANT}invoices/{house.invoice.number}/credit/", credit),
        (f"{TENANT}grant/", grant),
    ):
        form = {"act": "confirm", "seen": seen_in(preview(ops[0], path, **fields)), **fields}

        def confirmed(op: Client, path: str = path, form: dict[str, str] = form) -> int:
            try:
                return op.post(path, form).status_code
            finally:
                connections.close_all()

        with ThreadPoolExecutor(len(ops)) as pool:
            assert sorted(pool.map(confirmed, ops)) == [200, 200, 302], path
    assert [note.total for note in Invoice.objects.filter(original=house.invoice)] == [-250]
    assert WalletGrant.objects.count() == 1


def gpus(slurm: StandIn) -> int:
    return slurm.world.limits("vision").tres["total"]["gres/gpu"]
