"""Everything that a tenant reads is in German for whoever reads German; what operators read stays English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from babel.messages.catalog import Message
from django.test import Client
from django.utils.translation import trans_real

from billing.documents import build, pdf
from billing.models import AutomaticTopUp, Invoice, WasteChoice
from portal.core.audit.tracking import TRACKED
from portal.core.tenants.models import User
from portal.dev import catalog
from portal.web.history import HIDDEN, TENANT_TABLES
from portal.web.templatetags.clustertab import _part
from tests import builders, sharing, stories
from tests.quota_stories import a_quota, look
from tests.waste_stories import a_rule
from tests.web.clock import stand_at
from tests.web.house import House, a_house, signed_in
from tests.web.pseudo import Pseudo, words_of
from tests.web.sign_up_stories import mail_reaches_people, open_the_house
from tests.web.test_access import ACTS, NOT_YET, TENANTS, address
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

NAMES = """
    Vision Lab Northern Compute GmbH Gate Berlin Hamburg Visa English Deutsch WALL GPU time
    API BIC CPU CSV ClusterTab FOCUS GPUs GiB IBAN JSON MIG MiB PDF Parquet QOS SHA Stripe TOML USD UTC VIES XML ZIP
    gpu ada ann ben carla eve hook lab op train vision
"""
"""What has one name in every language: people and things of the story, codes, and a line that was issued in English."""
VALUES = "standard visa"  # the slug of a tax, and what the gateway calls a card, in the history
MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
DATA = frozenset(f"{NAMES} {VALUES} {MONTHS}".split())


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """German in other letters; a part of a page that a test before this one kept is rendered anew, as after it."""
    real = trans_real.translation
    in_other_letters = Pseudo(real("de"))
    monkeypatch.setattr(
        trans_real, "translation", lambda name: in_other_letters if name == "de" else real(name)
    )
    _part.cache_clear()
    yield
    _part.cache_clear()


def test_no_word_of_a_tenants_pages_is_left_untranslated(pseudo: None, house: House) -> None:
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


def test_a_person_reads_in_their_language_and_an_operator_in_english(house: House) -> None:
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


def test_units_and_prices_are_german_wherever_ann_reads_them(house: House) -> None:
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
    monkeypatch: pytest.MonkeyPatch, house: House
) -> None:
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


def test_states_and_days_are_german_in_the_explorer_and_in_lists_of_jobs(house: House) -> None:
    client = german(house.ann)
    text = words(client.get("/t/vision-lab/costs/?from=2026-03-01&through=2026-03-31&by=state").text)
    assert "Abgeschlossen" in text
    assert "COMPLETED" not in text
    text = words(client.get("/t/vision-lab/jobs/").text)
    for state, shown in (
        ("Evicted", "Vom Knoten verdrängt"), ("NodeLost", "Knoten verloren"),
        ("OOMKilled", "Wegen Speichermangels beendet"),
    ):  # fmt: skip
        assert shown in text
        assert state not in text
    too_long = client.get("/t/vision-lab/costs/?from=2001-01-01&through=2026-03-31").text
    assert "höchstens 1.830 Tage" in too_long
    too_long = client.get("/t/vision-lab/efficiency/?from=2024-01-01&through=2026-03-31").text
    assert "höchstens 400 Tage. Wählen Sie einen kürzeren Zeitraum." in too_long


def test_what_a_line_and_a_job_held_is_named_in_german(house: House) -> None:
    builders.ingest(house.cluster, builders.a_job(job_id="4711", memory_mib=2048, ended="2026-03-20 11:00"))
    client = german(house.ann)
    line = words(client.get(f"/t/vision-lab/invoices/{house.invoice.number}/lines/1/").text)
    assert "23.400 GPU-Sekunden" in line
    job = words(client.get(f"/t/vision-lab/jobs/{house.record('4711')}/").text)
    assert "Arbeitsspeicher" in job
    assert "Memory" not in job


def test_a_key_that_would_have_expired_is_refused_in_german(house: House) -> None:
    form = {"act": "create", "name": "export", "scopes": ["usage:read"], "expires_on": "2020-01-01"}
    page = german(house.ann).post("/t/vision-lab/api-keys/change/", form, follow=True).text
    assert "Der Schlüssel wäre schon abgelaufen: Wählen Sie ein späteres Ende." in page


def test_a_refusal_is_german_to_its_numbers() -> None:
    client = german(a_house(close=False).ann)
    text = client.get("/t/vision-lab/quote/?gpus=1&hours=-1").content.decode()
    assert "ist keine Dauer eines Jobs: Schreiben Sie seine Stunden als Zahl über 0, höchstens 8.784." in text


def test_the_calculator_and_the_job_check_refuse_in_german() -> None:
    client, job = german(a_house(close=False).ann), "gpus=1&hours=1&gpu_model=a100"
    for path, refusal in (
        (f"quote/?{job}&account=zz", "Vision Lab gehört zu dieser Zeit der Account &#x27;zz&#x27; auf"),
        (
            f"budgets/check/?{job}&account=zz",
            "Vision Lab gehört zu dieser Zeit der Account &#x27;zz&#x27; auf",
        ),
        (f"quote/?{job}&at=9999-12-31", "9999-12-31 ist zu spät: Tage gibt es bis zum Jahr 9998."),
        (f"quote/?{job}&at=1066-10-14", "1066-10-14 ist zu früh: Tage gibt es ab 1970."),
        (f"quote/?{job}&at=soon", "&#x27;soon&#x27; ist kein Zeitpunkt. Schreiben Sie ein Datum"),
    ):
        assert refusal in client.get(f"/t/vision-lab/{path}").text, path


def test_what_is_wrong_with_a_budget_is_said_in_german() -> None:
    client = german(a_house(close=False).ann)
    query = "measure=money&every=month&act=preview&thresholds=50%25"
    for fields, sentence in (
        ("name=&amount=", "Name: Dieses Feld ist leer. Füllen Sie es aus. Betrag: Dieses Feld ist leer."),
        ("name=gpu&amount=viel", "Betrag: &#x27;viel&#x27; ist keine Zahl. Schreiben Sie sie wie 500.00."),
        (
            "name=gpu&amount=5&carry_over=101",
            "Übertrag, Prozent: Schreiben Sie eine ganze Zahl von 0 bis 100.",
        ),
        ("name=gpu&amount=5&repeat_every=0", "Wiederholen alle: Geben Sie einen Betrag über null an"),
    ):
        assert sentence in client.get(f"/t/vision-lab/budgets/?{query}&{fields}").content.decode()


def test_no_sentence_for_tenants_names_a_field_of_the_api_instead_of_the_thing() -> None:
    """But for taxes, which an operator sets in a file."""
    field = re.compile(r"`|(?<![{(\w])[a-z]+_[a-z_]+(?![\w})])")
    of_taxes = {
        message for name, message, _context in catalog.marked() if name == "billing/invoicing/line_taxes.py"
    }
    for message in catalog.read_catalog():
        first = message.id if isinstance(message.id, str) else message.id[0]
        if first and first not in of_taxes and catalog.FOR_OPERATORS not in message.user_comments:
            for text in texts_of(message):
                assert not field.search(text), text


def test_no_sentence_for_tenants_ends_with_a_name_that_may_end_with_a_full_stop() -> None:
    ending = re.compile(r"(\{(tenant|whom)\}|%\((tenant|whom)\)s)\.(\s|$)")
    for message in catalog.read_catalog():
        if message.id and catalog.FOR_OPERATORS not in message.user_comments:
            for text in texts_of(message):
                assert not ending.search(text), text  # Halcyon Labs, Inc.


def texts_of(message: Message) -> list[str]:
    """In both languages, of one in two forms both."""
    texts = (message.id, message.string or "")
    return [text for one in texts for text in ([one] if isinstance(one, str) else one)]


def test_the_history_has_german_for_codes_moments_and_numbers(house: House) -> None:
    form = {"name": "gpu", "amount": "1500", "measure": "money", "every": "month", "action": "notify"}
    client = german(house.ann)
    client.post("/t/vision-lab/budgets/change/", form | {"act": "save", "thresholds": "50%"})
    member = house.vision.memberships.get(user=house.ben).pk
    client.post("/t/vision-lab/team/change/", {"act": "role", "member": member, "role": "viewer"})
    client.post("/t/vision-lab/invoices/INV-2026-0002/links/", {"act": "make", "days": "30"})
    top_up = {"active": True, "threshold": 2000, "amount": 500000, "monthly_limit": 900000}
    moment = datetime(2026, 4, 1, 10, tzinfo=UTC)
    AutomaticTopUp.objects.create(
        tenant=house.vision, wallet=house.wallet, set_by="ann@vision.example", set_at=moment, **top_up
    )
    WasteChoice.objects.create(tenant=house.vision, rule=a_rule(), takes_part=True, chosen_at=moment)
    text = words(client.get("/t/vision-lab/history/").content.decode())
    for shown in (
        "Betrag: 5.000,00 $",
        "gesetzt am: 01.04.2026, 10:00",
        "Wallet: Vision Lab",
        "Regel: idle-3-hours nimmt teil: ja",
        "Rolle: Mitglied → Leser",
        "Betrag: 1.500",
        "Messgröße: Geld, vor Steuern",
        "Wirkung: Nur benachrichtigen",
        "gesetzt von: Ein Inhaber des Kunden",
        "Rechnung: INV-2026-0002",
        "Seite /t/vision-lab/budgets/change/",
    ):
        assert shown in text
    assert not re.search(r"\d{4}-\d\d-\d\d|\d UTC|\bmonth\b|\bgross\b", text)


def test_each_column_and_choice_of_a_tenants_history_has_german() -> None:
    translations = catalog.read_catalog()
    for tracked in TRACKED:
        if tracked.table not in TENANT_TABLES:
            continue
        for field in tracked.model._meta.concrete_fields:
            if field.column in HIDDEN or field.name in tracked.exclude:
                continue
            label = str(field.column).removesuffix("_id").replace("_", " ")
            choices = [] if field.name in {"role", "language"} else field.flatchoices or []
            for text in (label, *(str(name) for _value, name in choices)):
                assert translations[text].string, (tracked.table, field.column, text)


def test_fifteen_thousand_as_germans_write_it_is_never_taken_for_fifteen(house: House) -> None:
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


def test_without_a_choice_the_browser_decides_and_the_choice_is_a_persons_own(house: House) -> None:
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
