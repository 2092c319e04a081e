"""From the invitation to the paid invoice, as five people walk it in browsers of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import override_settings
from playwright.sync_api import Page, expect

from billing import tasks
from billing.models import Invoice
from billing.rules.period import shifted
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Role, Tenant
from portal.core.tenants.tasks import send_account_mails
from portal.dev.stripe_sandbox import Sandbox
from tests import builders
from tests.web.browser import SKIP_REASON, chromium
from tests.web.pictures import BOTH, Album, Reader, an_album
from tests.web.test_close_in_a_browser import meanwhile, perform
from tests.web.test_onboarding_in_a_browser import rated
from tests.web.test_payment_in_a_browser import fill_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]
TO_EVERYBODY = ("/accounts/", "/pay/", "/reference/", "/tenants/", "/.well-known/", "/admin/")
"""What opens for a stranger: her own account, a signed link, the docs, public keys. The admin answers 403."""
OF_ANN = """
    costs costs/change live jobs plan quote efficiency idle-jobs payment
    account billing notifications api-keys webhooks history
"""
"""Pages of a tenant that the story does not need; hers are looked at on the way, too."""


@dataclass(frozen=True)
class Portal:
    """The running portal, the sandbox behind it, and the month that is closed in the story."""

    url: str
    stripe: Sandbox
    now: datetime

    @property
    def month(self) -> str:
        return "{:04d}-{:02d}".format(*shifted((self.now.year, self.now.month), -1))

    @property
    def month_name(self) -> str:
        return f"{builders.at(f'{self.month}-01'):%B %Y}"


@pytest.fixture
def portal(live_server: LiveServer, settings: Any) -> Iterator[Portal]:
    cache.clear()
    now = datetime.now(UTC).replace(microsecond=0)
    with Sandbox(now=now, secret="whsec_of_the_tests") as stripe:
        settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, live_server.url
        policy = settings.CONTENT_SECURITY_POLICY
        settings.CONTENT_SECURITY_POLICY = policy.replace(
            "form-action 'self'", f"form-action 'self' {stripe.url}"
        )
        keys = {"STRIPE_SECRET_KEY": stripe.key, "STRIPE_API_BASE": stripe.url}
        with override_settings(**keys, STRIPE_WEBHOOK_SECRETS=["whsec_of_the_tests"]):
            yield Portal(live_server.url, stripe, now)
        assert stripe.violations == []


def used(portal: Portal) -> Cluster:
    """Last month Ben's 17 held 2 GPUs for 3 hours, Ada's 18 one for half an hour; 19 is the speech lab's."""
    cluster = builders.a_cluster("rhea")
    builders.a_seller(iban="DE89370400440532013000")
    month, this_month = portal.month, portal.now.replace(day=1, hour=0, minute=0, second=0)
    since_then = [
        builders.a_job(
            job_id=f"2{day:02}",
            name="finetune",
            user=("ben", "ada")[day % 2],
            started=f"{this_month + timedelta(days=day):%Y-%m-%d} 02:00",
            ended=f"{this_month + timedelta(days=day):%Y-%m-%d} 05:00",
        )
        for day in range((portal.now - this_month).days)
    ]
    builders.ingest(cluster, *last_month(month), *since_then, as_of=f"{portal.now:%Y-%m-%d %H:%M}")
    return cluster


def last_month(month: str) -> list[UsageFact]:
    return [
        builders.a_job(
            job_id="17", name="train", gpus=2, started=f"{month}-02 10:00", ended=f"{month}-02 13:00"
        ),
        builders.a_job(job_id="18", user="ada", started=f"{month}-03 10:00", ended=f"{month}-03 10:30"),
        builders.a_job(
            job_id="19", account="speech", user="eve", started=f"{month}-03 10:00", ended=f"{month}-03 11:00"
        ),
    ]


def test_op_ann_ben_and_finance_come_from_the_invitation_to_the_paid_invoice(
    portal: Portal, pictures: Path | None
) -> None:
    builders.an_operator()
    used(portal)
    with chromium() as browser, an_album(browser, pictures) as album:
        op, ann, ben = album.reader("op"), album.reader("ann", BOTH), album.reader("ben", BOTH)
        op_sets_up_two_tenants_and_invites_ann(op, portal)
        ann_joins_and_sets_a_budget(ann, portal)
        ben_joins_and_finds_his_own_jobs(ann, ben, portal)
        op_previews_the_month_and_issues_it(op, portal)
        link = ann_sends_finance_a_payment_link(ann, portal)
        finance_pays_by_card_without_signing_in(album, link)
        ann_sees_it_paid_and_the_receipt(ann, portal)
        eve_finds_nothing_of_it(album, portal, [op, ann, ben])


def op_sets_up_two_tenants_and_invites_ann(op: Reader, portal: Portal) -> None:
    """Who is billed for what, at which price: the names of accounts suggest the tenants."""
    page = op.page
    signs_in(page, f"{portal.url}/operator/", "op@cluster.example")
    op.looks("home")
    page.get_by_role("link", name="Continue").click()
    expect(page.get_by_label("Name of the new tenant of vision")).to_have_value("Vision")
    op.looks("accounts")
    page.get_by_role("button", name="Assign and continue").click()
    meanwhile(rated)
    page.goto(f"{portal.url}/operator/set-up/")
    page.get_by_label("A GPU-hour of a100").fill("2.00")
    op.looks("prices")
    page.get_by_role("button", name="Publish and continue").click()
    meanwhile(rated)
    page.goto(f"{portal.url}/operator/set-up/")
    op.looks("draft")
    page.get_by_role("link", name="Tenants", exact=True).click()
    page.get_by_role("link", name="Vision", exact=True).click()
    op.looks("tenant")
    page.get_by_role("link", name="Team").click()
    invites(page, "ann@vision.example", "Owner")
    op.looks("team")


def ann_joins_and_sets_a_budget(ann: Reader, portal: Portal) -> None:
    joins(ann, portal, "ann@vision.example")
    ann.looks("overview")
    page = ann.page
    page.get_by_role("link", name="Budgets").click()
    page.get_by_label("Name", exact=True).fill("monthly")
    page.get_by_label("Amount", exact=True).fill("500.00")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Create budget monthly?")).to_be_visible()
    ann.looks("budget")
    page.get_by_role("button", name="Save budget").click()
    expect(page.get_by_text("Budget monthly is saved.")).to_be_visible()
    expect(page.get_by_role("cell", name="$500.00").first).to_be_visible()
    ann.looks("budgets")


def ben_joins_and_finds_his_own_jobs(ann: Reader, ben: Reader, portal: Portal) -> None:
    page = ann.page
    page.get_by_role("link", name="Settings").click()
    invites(page, "ben@vision.example", "Member")
    ann.looks("invited")
    joins(ben, portal, "ben@vision.example")
    page.reload()
    page.get_by_label("User names of ben@vision.example").fill("ben")
    page.locator("tr", has_text="ben@vision.example").get_by_role("button", name="Save").nth(1).click()
    ann.looks("team")

    page = ben.page
    page.reload()
    ben.looks("overview")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("Started in").select_option(label=portal.month_name)
    rows = page.locator("#rows tr:not(.ct-more)")
    expect(rows).to_have_count(2)
    page.get_by_label("Mine").check()
    expect(rows).to_have_count(1)  # Ada's is not his
    expect(rows).to_contain_text("$12.00")
    ben.looks("jobs")
    page.get_by_role("link", name="17", exact=True).click()
    expect(page.get_by_role("heading", name="17")).to_be_visible()
    expect(page.get_by_text("$12.00").first).to_be_visible()
    ben.looks("job")


def op_previews_the_month_and_issues_it(op: Reader, portal: Portal) -> None:
    page = op.page
    page.get_by_role("link", name="Month-end close").click()
    expect(page.get_by_role("heading", name="No preview yet")).to_be_visible()
    page.get_by_role("button", name="Preview").click()
    meanwhile(perform)
    expect(page.get_by_text("Ready to issue").first).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^Vision"))).to_contain_text("$13.00")
    op.looks("preview")
    page.get_by_role("button", name=f"Issue {portal.month_name}").click()
    expect(page.get_by_role("heading", name=f"Issue the invoices of {portal.month_name}")).to_be_visible()
    op.looks("confirmation")
    page.get_by_role("button", name=f"Issue {portal.month_name}").click()
    meanwhile(perform)
    expect(page.get_by_role("row", name=re.compile("^Vision"))).to_contain_text("INV-")
    op.looks("issued")
    meanwhile(mails)


def ann_sends_finance_a_payment_link(ann: Reader, portal: Portal) -> str:
    page = ann.page
    page.get_by_role("link", name="Invoices", exact=True).click()
    ann.looks("invoices")
    page.get_by_role("link", name=re.compile("^INV-")).click()
    expect(page.get_by_text("$13.00").first).to_be_visible()
    page.get_by_role("button", name="Make link").click()
    expect(page.get_by_text("Payment link made")).to_be_visible()
    ann.looks("invoice")
    link = page.get_by_text(f"{portal.url}/pay/").text_content()
    assert link is not None
    return link


def finance_pays_by_card_without_signing_in(album: Album, link: str) -> None:
    finance = album.reader("finance", BOTH)
    page = finance.page
    page.goto(link)
    expect(page.get_by_role("heading", name="To pay")).to_be_visible()
    finance.looks("link")
    page.get_by_role("button", name="Pay $13.00 by card").click()
    fill_in(page, "4242 4242 4242 4242")
    page.wait_for_url(link)
    expect(page.get_by_text("$13.00 paid. Thank you.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Paid")
    finance.looks("paid")


def ann_sees_it_paid_and_the_receipt(ann: Reader, portal: Portal) -> None:
    meanwhile(mails)
    (receipt,) = (message for message in mail.outbox if message.subject.startswith("Receipt"))
    assert "$13.00" in receipt.subject
    assert receipt.to == ["ann@vision.example"]
    page = ann.page
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Paid")
    expect(page.get_by_role("region", name="Payments")).to_contain_text("$13.00")
    expect(page.get_by_role("region", name="E-mails")).to_contain_text("Receipt")
    ann.looks("paid")
    page.get_by_role("link", name="Overview").click()
    ann.looks("paid-overview")
    for path in OF_ANN.split():
        page.goto(f"{portal.url}/t/vision/{path}/")
        ann.looks(path.replace("/", "-"))


def eve_finds_nothing_of_it(album: Album, portal: Portal, others: list[Reader]) -> None:
    meanwhile(lambda: builders.a_person("eve@speech.example", Tenant.objects.get(slug="speech"), Role.OWNER))
    eve = album.reader("eve")
    signs_in(eve.page, f"{portal.url}/t/speech/", "eve@speech.example")
    ours = (url for reader in others for url in reader.addresses if url.startswith(portal.url))
    paths = dict.fromkeys(urlsplit(url).path for url in ours)
    closed = [path for path in paths if path != "/" and not path.startswith((*TO_EVERYBODY, "/t/speech/"))]
    assert len(closed) > 60
    answers = {path: eve.page.request.get(f"{portal.url}{path}").status for path in closed}
    assert {path: status for path, status in answers.items() if status != 404} == {}


def signs_in(page: Page, url: str, email: str) -> None:
    page.goto(url)
    page.fill("[name=login]", email)
    page.fill("[name=password]", builders.PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url(url)


def invites(page: Page, email: str, role: str) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Role", exact=True).select_option(label=role)
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_text(f"{email} is invited by e-mail.")).to_be_visible()


def joins(reader: Reader, portal: Portal, email: str) -> None:
    """By the link of the e-mail, with a password of their own."""
    meanwhile(send_account_mails)
    message = mail.outbox[-1]
    assert message.to == [email]
    (link,) = re.findall(rf"{portal.url}/invitations/\S+", str(message.body))
    page = reader.page
    page.goto(link)
    reader.looks("invitation")
    for field in ("password1", "password2"):
        page.fill(f"[name={field}]", builders.PASSWORD)
    page.get_by_role("button", name="Make account and join").click()
    page.wait_for_url("**/t/vision/")
    expect(page.get_by_text("Welcome! You are a member of Vision now.")).to_be_visible()


def mails() -> None:
    """A round of the tasks that write and send e-mails of invoices and payments."""
    for invoice in Invoice.objects.issued():
        tasks.render_document(invoice_id=invoice.pk)
    tasks.dun()
    tasks.send_notices()
