"""Everything that a tenant reads is in German for whoever reads German; what operators read stays English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import trans_real

from billing.documents import build, pdf
from billing.models import AutomaticTopUp, Invoice
from portal.core.tenants.models import User
from tests import stories
from tests.quota_stories import a_quota, look
from tests.web.clock import stand_at
from tests.web.house import House, a_house, signed_in
from tests.web.pseudo import Pseudo, words_of
from tests.web.sign_up_stories import mail_reaches_people, open_the_house
from tests.web.test_access import ACTS, NOT_YET, TENANTS, address

pytestmark = pytest.mark.django_db

NAMES = """
    Vision Lab Northern Compute GmbH Gate Berlin Hamburg Visa English Deutsch WALL GPU time COMPLETED
    API BIC CPU CSV ClusterTab FOCUS GPUs GiB IBAN JSON MIG MiB PDF Parquet QOS SHA Stripe TOML USD UTC VIES XML ZIP
    gpu ada ann ben carla eve hook lab op train vision
"""
"""What has one name in every language: people and things of the story, codes, and a line that was issued in English."""
VALUES = (
    "active billing card en member owner standard tenant usable visa wallet"  # of columns, in the history
)
MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
DATA = frozenset(f"{NAMES} {VALUES} {MONTHS}".split())


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trans_real.translation
    in_other_letters = Pseudo(real("de"))
    monkeypatch.setattr(
        trans_real, "translation", lambda name: in_other_letters if name == "de" else real(name)
    )


def test_no_word_of_a_tenants_pages_is_left_untranslated(pseudo: None) -> None:
    house = a_house()
    left = dict.fromkeys(f"{path}: {word} in {text}" for path, word, text in untranslated(house))
    assert "\n".join(left) == ""
    assert words_of("<p>Ţòƭàĺ</p><p>so far</p><p lang='en'>Operator</p>").__next__()[0] == "so"


def test_no_word_of_signing_up_and_changing_a_plan_is_left_untranslated(pseudo: None, settings: Any) -> None:
    mail_reaches_people(settings)
    house = a_house(close=False)
    client = german(open_the_house(house))
    pages = [client.get("/sign-up/")]
    pages.append(
        client.post(
            "/sign-up/", {"act": "ask", "name": "Orbit", "country": "DE", "plan": "starter"}, follow=True
        )
    )
    pages.append(german(house.ann).get("/t/vision-lab/plan/change/?plan=starter"))
    assert [
        name in page.text for name, page in zip(('"ask"', '"withdraw"', '"seen"'), pages, strict=True)
    ] == [True] * 3
    own = DATA | {"dan", "orbit", "Orbit", "deal", "starter", "vision"}
    left = [(word, text) for page in pages for word, text in words_of(page.text) if word not in own]
    assert left == []


def untranslated(house: House) -> Iterator[tuple[str, str, str]]:
    client = german(house.ann)
    for route in TENANTS:
        if route in ACTS or route in NOT_YET or route.endswith(("csv", "documents")):
            continue
        path = address(route, house)
        response = client.get(path)
        assert response.status_code == 200, path
        for word, text in words_of(response.content.decode()):
            if word not in DATA:
                yield path, word, text


def german(person: User) -> Client:
    User.objects.filter(pk=person.pk).update(language="de")
    return signed_in(person)


def test_a_person_reads_in_their_language_and_an_operator_in_english() -> None:
    house = a_house()
    client = german(house.ann)
    page = client.get("/t/vision-lab/?period=2026-03-01").content.decode()
    assert '<html lang="de">' in page
    assert "März 2026" in page
    assert "Übersicht" in page
    assert "13,00\N{NO-BREAK SPACE}$" in page  # 6.5 GPU-hours at 2.00
    assert "$13.00" not in page

    client = german(house.op)
    page = client.get("/t/vision-lab/invoices/").content.decode()
    assert "Rechnungen" in page
    assert '<h2 class="ct-nav-title" lang="en">Operator</h2>' in page
    assert "Month-end close" in page
    page = client.get("/operator/").content.decode()
    assert '<html lang="en">' in page
    assert "Rechnungen" not in page


def test_units_and_prices_are_german_wherever_ann_reads_them() -> None:
    house = a_house()
    client, job = german(house.ann), house.record("17")
    plan, spaced = "/t/vision-lab/plan/", "\N{NO-BREAK SPACE}"
    assert f"2,00{spaced}$ je GPU-Stunde" in client.get(plan).content.decode()
    days = "from=2026-03-01&through=2026-03-31&by=project"
    for path in (
        f"costs/change/?{days}",
        f"jobs/{job}/",
        "quote/?gpus=1&hours=1&gpu_model=a100&at=2026-03-20T10:00",
    ):
        text = client.get(f"/t/vision-lab/{path}").content.decode()
        assert "GPU-Stunden" in text
        assert not re.search("GPU-hour|core-hour|GiB-hour", text), path


def test_nouns_inside_a_sentence_keep_their_capitals_and_parts_their_comma(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = a_house()
    client, days = german(house.ann), "from=2026-03-01&through=2026-03-31"
    for path, title in (
        (f"efficiency/?{days}&by=project", "GPU-Stunden und Kosten nach Projekt"),
        (f"costs/?{days}&by=project&and=gpu_model", "Ausgaben nach Projekt und GPU-Modell"),
        (f"costs/?{days}&by=user", "Ausgaben nach Benutzer"),
    ):
        assert title in client.get(f"/t/vision-lab/{path}").content.decode()
    a_quota(house.vision, amount=Decimal(80))
    look("2026-03-31 10:00")
    stand_at(monkeypatch, "2026-03-31 10:00")
    assert "16,3 %" in client.get("/t/vision-lab/budgets/").content.decode()  # 13.00 of 80.00


def test_a_refusal_is_german_to_its_numbers() -> None:
    client = german(a_house(close=False).ann)
    text = client.get("/t/vision-lab/quote/?gpus=1&hours=-1").content.decode()
    assert "ist keine Anzahl von Stunden: Schreiben Sie eine von 0 bis 8.784." in text


def test_fifteen_thousand_as_germans_write_it_is_never_taken_for_fifteen() -> None:
    house = a_house()
    query = "name=gpu&measure=money&every=month&action=notify&credits=gross&act=preview"

    def previewed(client: Client, fields: str) -> str:
        return client.get(f"/t/vision-lab/budgets/?{query}&{fields}").content.decode()

    assert "$15.00" in previewed(signed_in(house.ann), "amount=15.000")
    client = german(house.ann)
    refusal = "15.000 kann zweierlei heißen: Schreiben Sie 15000 oder 15."
    assert refusal in previewed(client, "amount=15.000")
    assert refusal in previewed(client, "amount=20000&thresholds=15.000")
    assert "15.000,00\N{NO-BREAK SPACE}$" in previewed(client, "amount=15000")
    assert "1.500 kann zweierlei heißen: Schreiben Sie 1500 oder 1.5." in previewed(client, "amount=1.500")
    path = f"/t/vision-lab/wallets/{house.wallet.pk}/automatic/"
    typed = {"act": "on", "below": "1.000", "amount": "5000", "most": "20000"}
    assert "wie 50.00" in client.post(path, typed, follow=True).content.decode()
    assert not AutomaticTopUp.objects.exists()


def test_without_a_choice_the_browser_decides_and_the_choice_is_a_persons_own() -> None:
    house = a_house()
    client = signed_in(house.ann)
    browser = {"Accept-Language": "de-DE,de;q=0.9,en;q=0.5"}
    assert "Rechnungen" in client.get("/t/vision-lab/invoices/", headers=browser).content.decode()
    assert "Rechnungen" not in client.get("/t/vision-lab/invoices/").content.decode()
    assert "Anmelden" in Client().get("/accounts/login/", headers=browser).content.decode()
    assert "There is nothing here" in client.get("/operator/", headers=browser).content.decode()

    assert client.post("/accounts/language/", {"language": "de"}).status_code == 302
    shown = client.get("/accounts/language/").content.decode()
    assert "Sprache gespeichert." in shown
    assert '<option value="de" selected>Deutsch</option>' in shown
    client.post("/accounts/language/", {"language": "tlh"})
    house.ann.refresh_from_db()
    assert house.ann.language == "de"


def test_an_issued_invoice_keeps_its_language_and_mails_follow_the_tenant() -> None:
    house = a_house(close=False)
    client = signed_in(house.ann)
    details = {"act": "save", "language": "de"}
    assert client.post("/t/vision-lab/billing/change/", details).status_code == 302
    stories.close("2026-03")
    invoice = house.invoice
    invoice.refresh_from_db()
    assert invoice.buyer["language"] == "de"
    assert [line.description for line in invoice.lines.all()] == ["GPU-Zeit, a100"]

    client.post("/t/vision-lab/billing/change/", {"act": "save", "language": "en"})
    document = build.document_of(Invoice.objects.get(pk=invoice.pk))
    assert (document.language, document.kind, document.total) == (
        "de",
        "Rechnung",
        "13,00\N{NO-BREAK SPACE}$",
    )
    assert document.service_period == "März 2026"
    text = pdf.render(document)
    assert text.startswith(b"%PDF")
    source = pdf.source(document)
    assert source["words"]["Billed to"] == "Rechnung an"
    assert re.fullmatch(r"\d\d\.\d\d\.\d{4}", source["issued"])
