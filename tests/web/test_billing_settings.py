"""Carla sets what stands on her lab's invoices and who gets which e-mails; Op has the same page."""

from __future__ import annotations

import re
from html import unescape

import pytest

from billing.emails import contacts
from billing.emails.contacts import ContactError
from billing.models import BillingContact, Notice, NoticeKind, Seller
from billing.notifications import recipients
from portal.config_file.apply import apply
from portal.config_file.schema import parse
from portal.core.tenants.models import Role, TaxTreatment, Tenant, User
from portal.sentences import sentence
from tests import builders, sharing, stories
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

PAGE, CHANGE = "/t/vision-lab/billing/", "/t/vision-lab/billing/change/"
DETAILS = {
    "email": "bills@vision.example",
    "address": " Gate 2 \r\n\r\n Building  C",
    "postcode": "10117",
    "city": "Berlin",
    "vat_id": "de 136 695 976",
    "purchase_order": "PO-4711",
    "buyer_reference": "",
    "electronic_address": "",
}


def test_a_change_is_previewed_then_stands_on_the_next_invoice_and_in_the_history(house: House) -> None:
    Tenant.objects.filter(pk=house.vision.pk).update(country="DE", tax_treatment=TaxTreatment.BY_COUNTRY)
    carla = signed_in(house.carla)
    shown = words(carla.post(CHANGE, {"act": "preview", **DETAILS}, follow=True).content.decode())
    assert "Purchase order – PO-4711" in shown
    assert "Postal address Gate 1 10115 Berlin Gate 2 Building C" in shown
    assert "The VAT id decides how the next invoices are taxed." in shown
    house.vision.refresh_from_db()
    assert house.vision.purchase_order == ""  # nothing is saved by a preview
    assert "Preview" not in words(page(house.carla, PAGE)).replace("Preview changes", "")

    wrong = carla.post(CHANGE, {"act": "preview", **DETAILS, "vat_id": "DE136695977"}, follow=True)
    assert "its form or its check digits do not fit" in wrong.content.decode()
    for bad in (
        {"vat_id": "DE136695977"}, {"email": "bills at vision"}, {"purchase_order": "x" * 101},
        {"city": "Ber\u202elin"}, {"address": "Gate 1\n\x1b[2J"},
    ):  # fmt: skip
        carla.post(CHANGE, {"act": "save", **DETAILS, **bad})
        house.vision.refresh_from_db()
        assert (house.vision.purchase_order, house.vision.email) == ("", "")

    saved = carla.post(CHANGE, {"act": "save", **DETAILS}, follow=True)
    assert "Billing details saved" in saved.content.decode()
    house.vision.refresh_from_db()
    assert (house.vision.address, house.vision.vat_id) == ("Gate 2\nBuilding C", "DE136695976")
    assert "PO-4711" not in page(house.ann, f"/t/vision-lab/invoices/{house.invoice.number}/")
    assert "PO-4711" in page(house.ann, "/t/vision-lab/history/")
    Tenant.objects.filter(pk=house.vision.pk).update(tax_treatment="")
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="30", started="2026-04-02 10:00", ended="2026-04-02 11:00"),
        as_of="2026-05-10",
    )
    stories.close("2026-04")
    number = stories.invoice_of(house.vision, "2026-04").number
    assert "Purchase order PO-4711" in words(page(house.ann, f"/t/vision-lab/invoices/{number}/"))


def test_each_kind_of_e_mail_goes_to_its_contacts_and_the_others_where_they_went(house: House) -> None:
    carla = signed_in(house.carla)
    carla.post(CHANGE, {"act": "contact", "email": "ap@vision.example", "invoices": "on", "receipts": "on"})
    carla.post(CHANGE, {"act": "contact", "email": "boss@vision.example", "budgets": "on"})
    kinds = (NoticeKind.INVOICE, NoticeKind.CREDIT_NOTE, NoticeKind.RECEIPT, NoticeKind.REFUND)
    assert [recipients.list_recipients(house.vision, kind) for kind in kinds] == [["ap@vision.example"]] * 4
    people = ["ann@vision.example", "carla@vision.example"]
    assert recipients.list_recipients(house.vision, NoticeKind.REMINDER) == people
    assert recipients.list_recipients(house.vision, NoticeKind.QUOTA) == ["boss@vision.example"]
    contacts.set_billing_email(
        tenant=house.vision, email="x@vision.example", moment=builders.at("2026-04-20")
    )
    house.vision.refresh_from_db()
    assert recipients.list_recipients(house.vision, NoticeKind.SUSPENDED) == ["x@vision.example"]
    assert recipients.list_recipients(house.speech, NoticeKind.INVOICE) == ["eve@speech.example"]

    gone = carla.post(CHANGE, {"act": "contact", "email": "boss@vision.example"}, follow=True)
    assert "boss@vision.example is no contact any more." in gone.content.decode()
    assert [row.email for row in BillingContact.objects.all()] == ["ap@vision.example"]
    assert page(house.ann, "/t/vision-lab/history/").count("Billing contact") >= 3
    moment = builders.at("2026-04-20")
    for number in range(contacts.MOST - 1):
        contacts.set_contact(
            tenant=house.vision, email=f"c{number}@vision.example", topics=["invoices"], moment=moment
        )
    too_long = f"{'a' * 250}@vision.example"
    shown = carla.post(CHANGE, {"act": "contact", "email": too_long, "budgets": "on"}, follow=True)
    assert "is no e-mail address" in words(shown.content.decode())
    with pytest.raises(ContactError) as refusal:
        contacts.set_contact(
            tenant=house.vision, email="one@more.example", topics=["invoices"], moment=moment
        )
    assert "at most 20 contacts" in sentence(refusal.value)


def test_an_invoice_that_an_address_refused_is_sent_to_a_new_contact(house: House) -> None:
    moment = builders.at("2026-04-20")
    notices = Notice.objects.filter(tenant=house.vision, kind=NoticeKind.INVOICE)
    refused = {"old@vision.example": "550 gone"}
    notices.update(state="failed", refused=refused, sent_at=moment, details={"notify": True})
    contacts.set_contact(tenant=house.vision, email="ap@vision.example", topics=["invoices"], moment=moment)
    assert notices.get().state == "waiting"
    assert contacts.list_refused_addresses(house.vision) == {}
    assert recipients.list_recipients(house.vision, NoticeKind.INVOICE) == ["ap@vision.example"]


def test_a_file_sets_contacts_and_op_sees_them_on_the_same_page(house: House) -> None:
    text = """
        [[tenant]]
        slug = "vision-lab"
        [[tenant.contact]]
        email = "ap@vision.example"
        {}
    """
    done = apply(file=parse(text.format("invoices = true")))
    assert [change.what for change in done.changes] == ["contact ap@vision.example of vision-lab"]
    assert apply(file=parse(text.format("invoices = true"))).changes == []
    op = signed_in(house.op)
    shown = op.get("/operator/tenants/vision-lab/billing/").content.decode()
    assert "Billing settings of Vision Lab" in shown
    assert "ap@vision.example" in shown
    op.post("/operator/tenants/vision-lab/billing/", {"act": "save", "purchase_order": "PO-1"})
    assert Tenant.objects.get(slug="vision-lab").purchase_order == "PO-1"
    apply(file=parse(text.format("")))
    assert not BillingContact.objects.exists()


def test_viewers_look_members_do_not_and_strangers_find_nothing(house: House) -> None:
    viewer = builders.a_person("vic@vision.example", house.vision, Role.VIEWER)
    support = builders.an_operator("sue@cluster.example")
    support.operator_role = "support"
    support.save()
    assert "Preview changes" not in page(viewer, PAGE)
    assert "Preview changes" in page(house.ann, PAGE)
    assert "Preview changes" not in page(support, "/operator/tenants/vision-lab/billing/")
    assert signed_in(house.ben).get(PAGE).status_code == 404
    for form in ({"act": "save", **DETAILS}, {"act": "contact", "email": "eve@e.example", "invoices": "on"}):
        for person in (viewer, house.ben, house.eve, house.op):
            assert signed_in(person).post(CHANGE, form).status_code == 404
        assert signed_in(house.eve).post("/operator/tenants/vision-lab/billing/", form).status_code == 404
        signed_in(support).post("/operator/tenants/vision-lab/billing/", form)
    assert not BillingContact.objects.exists()
    assert Tenant.objects.get(slug="vision-lab").purchase_order == ""


def test_a_vat_id_that_would_have_reverse_charge_is_entered_by_op_who_looks_it_up(house: House) -> None:
    """A tenant does not untax itself by an id that is well formed and may be nobody's."""
    Seller.objects.update(country="DE", vat_id="DE811234565", email="vat@cluster.example")
    french = {"country": "FR", "tax_treatment": TaxTreatment.BY_COUNTRY}
    Tenant.objects.filter(pk=house.vision.pk).update(**french)
    carla, op = signed_in(house.carla), signed_in(house.op)
    entered = {"vat_id": "FR40303265045", "purchase_order": "PO-7"}
    for act in ("preview", "save"):
        refused = words(carla.post(CHANGE, {"act": act, **DETAILS, **entered}, follow=True).content.decode())
        assert "looked up in VIES first: send it to vat@cluster.example" in refused
        assert "Save changes" not in refused
    house.vision.refresh_from_db()
    assert (house.vision.vat_id, house.vision.purchase_order) == ("", "")
    carla.post(CHANGE, {"act": "save", "purchase_order": "PO-7"})

    theirs = "/operator/tenants/vision-lab/billing/"
    assert (
        "Look it up in VIES first"
        in op.post(theirs, {"act": "preview", **DETAILS, **entered}, follow=True).content.decode()
    )
    op.post(theirs, {"act": "save", **entered})
    house.vision.refresh_from_db()
    assert (house.vision.vat_id, house.vision.purchase_order) == ("FR40303265045", "PO-7")
    assert "VIES first: send" in words(
        carla.post(CHANGE, {"act": "save", "vat_id": "FR83404833048"}, follow=True).content.decode()
    )  # nor is another one put in its place
    carla.post(CHANGE, {"act": "save", "vat_id": ""})  # whoever has none is taxed
    house.vision.refresh_from_db()
    assert house.vision.vat_id == ""


def test_who_saves_what_they_previewed_leaves_what_another_saved_meanwhile(house: House) -> None:
    carla, ann = signed_in(house.carla), signed_in(house.ann)
    as_it_is = {name: getattr(house.vision, name) for name in DETAILS}
    preview = carla.post(CHANGE, {"act": "preview", **as_it_is, "purchase_order": "PO-7"}, follow=True)
    ann.post(CHANGE, {"act": "save", "city": "Potsdam"})
    form = preview.content.decode()
    form = form[form.index('id="preview-title"') : form.index('value="save"')]
    sent = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    del sent["csrfmiddlewaretoken"]
    carla.post(CHANGE, {"act": "save", **sent})
    house.vision.refresh_from_db()
    assert (house.vision.city, house.vision.purchase_order) == ("Potsdam", "PO-7")


def test_whoever_reads_german_reads_in_german_what_is_wrong_with_the_details(house: House) -> None:
    Tenant.objects.filter(pk=house.vision.pk).update(country="DE", tax_treatment=TaxTreatment.BY_COUNTRY)
    User.objects.filter(pk=house.carla.pk).update(language="de")
    carla = signed_in(house.carla)
    for name, value, refusal in (
        ("email", "bills at vision", "E-Mail für Rechnungen: "),
        ("postcode", "1" * 21, "Postleitzahl: "),
        ("city", "Ber\u202elin", "Ort enthält Steuerzeichen: Tippen Sie es neu."),
        (
            "electronic_address",
            "9999:1",
            "Adresse für E-Rechnungen: '9999:1' ist keine elektronische Adresse: ",
        ),
        ("buyer_reference", "04011000-1234512345-07", "ist wie eine Leitweg-ID geschrieben"),
        ("vat_id", "DE136695977", "Die USt-IdNr. ist 'DE136695977', und das ist keine USt-IdNr. aus DE: "),
        ("vat_id", "FR1", "Die USt-IdNr. ist 'FR1', und eine aus DE beginnt mit DE."),
    ):
        shown = carla.post(CHANGE, {"act": "preview", **DETAILS, name: value}, follow=True)
        assert refusal in unescape(shown.text)
