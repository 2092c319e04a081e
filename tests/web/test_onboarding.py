"""Op sets an empty installation up in the browser alone: from the seller to the first draft, left and resumed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.test import Client

from billing.models import Plan, PlanVersion, Seller, Subscription
from billing.rating import file_imports
from clusters.models import Account, Cluster, UsageFile
from portal.core.outbox import outbox
from portal.core.tenants.models import OperatorRole, Tenant, User
from portal.web import file_uploads
from tests import builders
from tests.web.house import signed_in
from tests.web.previewing import opened
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

SETUP = "/operator/set-up/"
SELLER = {
    "name": "Op Compute",
    "address": "1 Main St",
    "city": "Austin",
    "country": "US",
    "invoice_prefix": "INV-",
}
FILE = Path(__file__).parents[2] / "docs" / "examples" / "march.sacct"


@pytest.fixture
def op() -> Client:
    return signed_in(builders.an_operator())


def shown(op: Client, path: str = SETUP) -> str:
    answer = op.get(path)
    assert answer.status_code == 200
    return words(answer.content.decode())


def take(op: Client, step: str, **fields: str) -> str:
    answer = op.post(SETUP, {"step": step, **fields}, follow=True)
    assert answer.status_code == 200
    return words(answer.content.decode())


def fields_of(op: Client, step: str) -> dict[str, str]:
    """What the form of the step would send as it stands."""
    html = op.get(f"{SETUP}?step={step}").content.decode()
    form = html[html.index('name="step"') : html.index("</form>", html.index('name="step"'))]
    sent = dict(re.findall(r'name="([^"]+)"[^>]* value="([^"]*)"', form))
    for name, options in re.findall(r'<select [^>]*name="([^"]+)".*?>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'value="([^"]*)" selected', options)
        sent[name] = chosen[1] if chosen else ""
    sent.pop("step", None)
    return sent


def test_from_an_empty_database_to_the_first_draft_in_the_browser_alone(op: Client) -> None:
    assert "Set up ClusterTab From an empty database" in shown(op, "/operator/")
    for empty in ("/operator/clusters/", "/tenants/", "/operator/reports/"):
        page = op.get(empty).content.decode()
        assert f'href="{SETUP}' in page
        assert "./run" not in page

    assert "Who sends the invoices Name" in shown(op)
    assert "country" in take(op, "seller", **{**SELLER, "country": "Texas"})
    assert not Seller.objects.exists()
    assert "The seller is saved." in take(op, "seller", **SELLER)

    assert "Add a cluster Name" in shown(op)  # it goes on where it was left
    assert "timezone" in take(op, "cluster", name="lab", kind="import", timezone="Mars/Base")
    assert "Import accounting files" in take(op, "cluster", name="lab", kind="import", timezone="UTC")
    assert "There is a cluster of this name already." in take(
        op, "cluster", name="lab", kind="import", timezone="UTC"
    )

    assert "Read its usage" in shown(op)
    file = SimpleUploadedFile("march.sacct", FILE.read_bytes())
    sent = op.post("/operator/clusters/lab/files/", {"file": file, "as_of": "2026-04-01T00:00"}, follow=True)
    assert "Its import starts shortly." in sent.content.decode()
    assert 'hx-trigger="every 2s"' in sent.content.decode()
    row = UsageFile.objects.get()
    assert file_imports.import_file(row.pk, clock=lambda: datetime.now(UTC).replace(microsecond=0))
    assert "march.sacct" in (text := shown(op, "/operator/clusters/lab/files/"))
    assert "Imported" in text

    text = shown(op)
    assert "Say whose accounts they are Each account with usage" in text
    accounts = fields_of(op, "accounts")
    assert set(accounts.values()) >= {"+"}
    assert "Choose a tenant for at least one account." in take(
        op,
        "accounts",
        **{name: "" if name.startswith("tenant-") else value for name, value in accounts.items()},
    )
    assert "assigned. Their usage is rated now." in take(op, "accounts", **accounts)
    assert Tenant.objects.count() == Account.objects.count() > 0
    outbox.drain()  # as the worker does

    plan = fields_of(op, "plan")
    assert plan["since"] == "2026-03-01"
    prices = {name: "2.50" for name in plan if name.startswith("price-")}
    assert prices
    assert "price" in take(op, "plan", **{**plan, **dict.fromkeys(prices, "much")})
    assert not Plan.objects.exists()
    assert "Plan standard is published" in take(op, "plan", **{**plan, **prices})
    assert "There is a plan standard already" in take(op, "plan", **{**plan, **prices, "since": "2026-02-01"})
    assert (Subscription.objects.count(), PlanVersion.objects.count()) == (Tenant.objects.count(), 1)
    outbox.drain()

    text = shown(op)
    assert "The drafts of March 2026, as a close would write them now." in text
    slug = Tenant.objects.order_by("name").values_list("slug", flat=True)[0]
    assert f"/operator/close/2026-03/{slug}/" in op.get(SETUP).content.decode()
    draft = words(opened(op, f"/operator/close/2026-03/{slug}/").content.decode())
    assert "$2.50" in draft, draft
    assert "Total $" in draft


def test_a_seller_that_is_there_already_stands_in_its_form(op: Client) -> None:
    """Who only looks and saves does not begin another series of numbers, or lose a line of the address."""
    take(op, "seller", **{**SELLER, "invoice_prefix": "OC-", "address": "1 Main St\nFloor 2"})
    html = op.get(f"{SETUP}?step=seller").content.decode()
    fields = {**fields_of(op, "seller"), "address": html.partition("</textarea>")[0].rpartition(">")[2]}
    assert fields["address"] == "1 Main St\nFloor 2"
    take(op, "seller", **fields)
    seller = Seller.objects.get()
    assert (seller.invoice_prefix, seller.address) == ("OC-", "1 Main St\nFloor 2")


def test_steps_are_for_the_roles_that_may_and_strangers_find_nothing() -> None:
    support = User.objects.create_user(
        "sue@cluster.example", builders.PASSWORD, operator_role=OperatorRole.SUPPORT
    )
    assert "Your role may look at this step" in shown(signed_in(support))
    assert "Your role does not allow this" in take(signed_in(support), "seller", **SELLER)
    assert not Seller.objects.exists()
    ann = signed_in(builders.a_person())
    assert ann.get(SETUP).status_code == 404
    assert ann.post(SETUP, {"step": "seller", **SELLER}).status_code == 404


def test_a_file_that_cannot_be_imported_says_what_to_do(op: Client) -> None:
    builders.a_cluster("lab")
    builders.a_cluster("pushed", kind="push")
    path = "/operator/clusters/lab/files/"
    assert op.get("/operator/clusters/pushed/files/").status_code == 404
    assert "Choose a file that is not empty." in words(op.post(path, {}, follow=True).content.decode())
    odd = {"file": BytesIO(b"JobID|"), "format": "excel"}
    assert "Choose by what the file was printed." in words(op.post(path, odd, follow=True).content.decode())
    assert "TZ=UTC sacct --allusers --allocations --duplicates" in words(op.get(path).content.decode())
    late = {"file": BytesIO(b"JobID|"), "as_of": "2999-01-01T00:00"}
    assert "lies in the future" in words(op.post(path, late, follow=True).content.decode())
    assert not UsageFile.objects.exists()
    named = SimpleUploadedFile("é" * 180 + "\u202e\x07.sacct", FILE.read_bytes())
    builders.a_cluster("other")
    op.post("/operator/clusters/other/files/", {"file": named, "as_of": "2026-04-01T00:00"})
    long = UsageFile.objects.get()
    assert file_imports.import_file(long.pk, clock=lambda: datetime.now(UTC).replace(microsecond=0))
    long.refresh_from_db()
    assert (long.error, len(long.name.encode()), long.name.isprintable()) == ("", 200, True)
    long.delete()
    op.post(path, {"file": SimpleUploadedFile("odd.txt", b"no such header\n"), "format": "sacct"})
    file_imports.import_file(
        UsageFile.objects.get().pk, clock=lambda: datetime.now(UTC).replace(microsecond=0)
    )
    assert "Failed" in shown(op, path)
    assert UsageFile.objects.get().error in op.get(path).content.decode().replace("&#x27;", "'")
    assert Cluster.objects.get(name="lab").complete_through is None


def test_files_of_strangers_are_refused_before_they_are_kept(
    op: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends a form with a token makes the portal read all of it, wherever it is sent to."""
    builders.a_cluster("lab")
    kept: list[str] = []
    monkeypatch.setattr(
        TemporaryFileUploadHandler, "new_file", lambda self, *_, **__: kept.append(type(self).__name__)
    )
    large = b"x" * (2 << 20)
    stranger, ann = Client(), signed_in(builders.a_person())
    for client in (stranger, ann):
        client.handler.enforce_csrf_checks = True
        client.cookies[settings.CSRF_COOKIE_NAME] = "t" * 32
        for path in ("/accounts/login/", "/operator/clusters/lab/files/"):
            assert client.post(path, {"file": BytesIO(large)}).status_code == 400
    assert kept == []
    monkeypatch.undo()
    assert op.post("/operator/clusters/lab/files/", {"file": BytesIO(large)}).status_code == 302
    monkeypatch.setattr(file_uploads, "LARGEST", 1 << 20)
    refusal = op.post("/operator/clusters/lab/files/", {"file": BytesIO(large)})
    assert refusal.status_code == 400
    assert "at most 1 GiB: export shorter periods" in refusal.content.decode()


def test_a_failure_of_ours_has_a_page_that_needs_nothing() -> None:
    from django.test import RequestFactory
    from django.views.defaults import server_error

    page = server_error(RequestFactory().get("/")).content.decode()
    assert "Something broke on our side" in page
    assert "no usage is lost" in page
    assert 'href="/"' in page
