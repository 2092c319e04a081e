"""Op gives the portal a name, a color and a logo: every person reads and sees them; what was issued stays."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pypdf import PdfReader

from billing.documents import issued
from billing.emails import delivery
from billing.invoicing import credit_notes
from billing.models import InvoiceDocument
from portal import colors
from portal.core.audit.models import AuditEntry
from portal.core.tenants import brand, invitations
from portal.core.tenants.account_mails import send_due
from portal.core.tenants.brand import PRODUCT, current_brand, set_brand
from portal.core.tenants.logos import BrandError, encode_logo
from portal.core.tenants.models import Brand, BrandLogo, OperatorRole, Role, User
from portal.core.tenants.operators import set_operator_role
from portal.ops.accounts import SecondFactor
from tests import builders, stories
from tests.brands import COLOR, NAME, a_brand, a_picture
from tests.scenarios.configuring import Op
from tests.web.house import House, a_house, page, signed_in

PATH = "/operator/brand/"
NOW = builders.at("2026-06-02 10:00")


def sends(person: User, act: str, **fields: Any) -> str:
    """The page that follows the button."""
    response = signed_in(person).post(PATH, {"act": act, **fields}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def a_file(content: bytes, name: str = "logo.png") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def digests() -> list[str]:
    return list(BrandLogo.objects.values_list("digest", flat=True))


@pytest.mark.django_db
def test_op_sees_the_brand_before_it_holds_and_then_everybody_sees_it() -> None:
    house = a_house(close=False)
    assert f"· {PRODUCT}</title>" in page(house.ann, "/t/vision-lab/")
    preview = sends(house.op, "preview", name=NAME, color=COLOR.upper(), logo=a_file(a_picture()))
    (png,) = re.findall(r'name="png" value="([^"]+)"', preview)[:1]
    assert f"<title>Brand · {NAME}</title>" in preview
    assert f'src="data:image/png;base64,{png}"' in preview
    assert f"{COLOR} on #f2f4f7, 8." in preview
    assert not Brand.objects.exists()
    assert not BrandLogo.objects.exists()
    saved = sends(house.op, "save", name=NAME, color=COLOR, png=png)
    assert "The brand is saved." in saved
    (digest,) = digests()
    assert base64.b64decode(png) == bytes(BrandLogo.objects.get().png)
    styles = f"/brand/{colors.stylesheet_name(COLOR)}.css"
    entrance = Client().get("/accounts/login/").content.decode()
    for text in (page(house.ann, "/t/vision-lab/"), page(house.eve, "/t/speech-lab/"), entrance):
        assert f"· {NAME}</title>" in text
        assert f"<span>{NAME}</span>" in text
        assert f'src="/brand/{digest}.png"' in text
        assert f'href="{styles}"' in text
        assert PRODUCT not in text
    assert SecondFactor().get_totp_issuer() == NAME
    entry = AuditEntry.objects.of_table(Brand).get()
    assert entry.who == house.op.email
    assert (entry.after or {})["color"] == COLOR
    assert "Nothing would change." in sends(house.op, "preview", name=NAME, color=COLOR, png=png)
    sends(house.op, "save", name="Nimbus", color="", remove="yes")
    history = page(house.op, "/operator/history/?table=tenants_brand")
    for before_or_after in (NAME, "Nimbus", COLOR, digest):
        assert before_or_after in history
    shown = page(house.ann, "/t/vision-lab/")
    assert "· Nimbus</title>" in shown
    assert "/brand/" not in shown


@pytest.mark.django_db
def test_its_files_are_kept_by_browsers_for_ever_and_need_no_session() -> None:
    logo = a_brand()
    visitor = Client()
    for path, kind, content in (
        (f"/brand/{logo.digest}.png", "image/png", logo.png),
        (f"/brand/{colors.stylesheet_name(COLOR)}.css", "text/css; charset=utf-8", None),
    ):
        answer = visitor.get(path)
        assert (answer.status_code, answer["Content-Type"]) == (200, kind)
        assert answer["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert "Set-Cookie" not in answer
        assert content is None or answer.content == content
        assert visitor.get(path, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    for path in (
        "0" * 64 + ".png",
        "x.png",
        "ffffff-0123456789abcdef.css",
        f"{COLOR[1:]}-0.css",
        "zzzzzz.css",
    ):
        assert visitor.get(f"/brand/{path}").status_code == 404


@pytest.mark.django_db
def test_a_page_asks_no_more_of_the_database_for_it() -> None:
    house = a_house(close=False)
    client = signed_in(house.ann)
    counts = []
    for _brand in range(2):
        client.get("/t/vision-lab/")
        with CaptureQueriesContext(connection) as queries:
            client.get("/t/vision-lab/")
        counts.append(len(queries))
        a_brand()
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_other_processes_show_a_change_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("portal.core.tenants.brand.time.monotonic", lambda: now)
    set_brand(name=NAME)
    assert current_brand().name == NAME
    Brand.objects.update(name="Nimbus")  # as another process does
    now = 104.9
    assert current_brand().name == NAME
    now = 105.1
    assert current_brand().name == "Nimbus"


@pytest.mark.django_db
def test_who_is_no_admin_only_reads_the_page() -> None:
    support = builders.an_operator("sue@cluster.example")
    builders.an_operator()
    support = set_operator_role(email=support.email, role=OperatorRole.SUPPORT)
    assert "Admins change the brand." in page(support, PATH)
    assert "Your role does not allow this." in sends(support, "save", name="Mine", color="")
    assert not Brand.objects.exists()


def png_of(width: int, height: int) -> bytes:
    """A picture that says it is so large, with next to nothing in it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
FRAMES = [Image.new("RGB", (40, 40), ink) for ink in ("red", "blue")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (SVG, "The file is no PNG, JPEG or WebP picture. Save the logo as PNG; SVG is not accepted."),
        (a_picture()[:200], "The file is no PNG, JPEG or WebP picture."),
        (png_of(30_000, 30_000), "at most 8,000 on a side and 16 million in all"),
        (png_of(1_000_000_000, 2), "at most 8,000 on a side"),
        (a_picture(12, 12), "The logo is smaller than 16 pixels"),
        (a_picture(ink="#ffffff"), "The logo is nearly white"),
        (a_picture(ink="#00000000"), "The logo is fully transparent"),
        (a_picture(40, 40, save_all=True, append_images=FRAMES), "The logo is animated"),
        (b"\0" * ((4 << 20) + 1), "The file is larger than 4 MiB"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "The file is no PNG, JPEG or WebP picture."),
    ],
    ids=("svg", "cut", "bomb", "strip", "tiny", "white", "empty", "animated", "large", "postscript"),
)
def test_a_bad_file_is_refused_with_a_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(BrandError) as refusal:
        encode_logo(content)
    assert sentence in str(refusal.value)


@pytest.mark.django_db
def test_the_page_says_what_is_wrong_and_keeps_what_was_typed() -> None:
    op = builders.an_operator()
    for fields, sentence in (
        ({"logo": SVG}, "SVG is not accepted."),
        ({"png": "no base64"}, "The file is no PNG"),
        ({"color": "orange"}, "&quot;orange&quot; is no color"),
        ({"color": "#ff6600"}, "#ff6600 has a contrast of 2.93:1 on white"),
        ({"name": "N" * 41}, "A name has at most 40 characters, and this one has 41."),
        ({"name": "A\nBcc: x"}, "The name has line breaks or control characters"),
    ):
        for act in ("preview", "save"):
            sent: dict[str, Any] = {"name": "Kept", "color": ""} | fields
            if isinstance(content := sent.get("logo"), bytes):
                sent["logo"] = a_file(content, "logo.svg")
            text = sends(op, act, **sent)
            assert sentence in text or sentence.replace("&quot;", "&#x27;") in text, sentence
            assert f'value="{fields.get("name", "Kept")}"' in text
    assert not Brand.objects.exists()


def test_nothing_but_pixels_is_kept_of_a_picture() -> None:
    """Neither where a photograph was taken nor a program behind the picture; the same picture is the same bytes."""
    note = Image.Exif()
    note[0x010E] = "taken at home"
    for kind in ("JPEG", "WEBP", "PNG"):
        content = a_picture(2000, 1000, kind=kind, exif=note) + b"<script>alert(1)</script>"
        assert b"taken at home" in content
        logo = encode_logo(content)
        assert (logo.width, logo.height) == (320, 160) or kind != "JPEG"
        assert b"taken" not in logo.png
        assert b"script" not in logo.png
        assert re.findall(rb"IHDR|PLTE|tRNS|IEND|tEXt|eXIf|iCCP", logo.png)[0] == b"IHDR"
        assert encode_logo(content) == logo == encode_logo(logo.png)
        assert len(logo.png) <= 64 << 10


def test_contrasts_are_those_of_wcag() -> None:
    assert colors.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert colors.written_ratio("#767676", "#ffffff") == "4.54"  # the lightest grey of AA
    assert colors.written_ratio("#777777", "#ffffff") == "4.47"


@given(st.integers(0, 0xFFFFFF))
def test_every_color_that_is_taken_is_readable_in_both_themes(number: int) -> None:
    color = f"#{number:06x}"
    try:
        brand.check_brand(name=None, color=color)
    except BrandError as refusal:
        nearest = str(refusal.values["nearest"])
        assert colors.contrast(color, "#ffffff") < 4.5 <= colors.contrast(nearest, "#ffffff")
        color = nearest
    own = colors.palette(color)
    for text, ground in (
        ("#ffffff", own.fill),
        ("#ffffff", own.fill_dark),
        ("#ffffff", own.current),
        (own.accent, "#ffffff"),
        (own.accent, "#f2f4f7"),
        (own.accent_dark, "#2a2f36"),
        (own.accent_dark, "#1b1e23"),
    ):
        assert colors.contrast(text, ground) >= 4.5, (color, text, ground)
    assert colors.contrast(own.fill_dark, colors.DARK_CARD) >= 3


@pytest.mark.django_db
def test_documents_carry_it_from_the_next_one_on_and_what_was_issued_never_changes(mailed: None) -> None:
    house = a_house()
    march = house.invoice
    before = bytes(issued.keep(march, moment=NOW).pdf)
    assert pictures(before) == []
    logo = a_brand()
    march.refresh_from_db()
    assert issued.made(march).pdf == before  # made again it is the same, too
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="20", started="2026-04-02 10:00", ended="2026-04-02 11:00"),
        as_of="2026-06-01",
    )
    stories.close("2026-04", house.vision)
    april = stories.invoice_of(house.vision, "2026-04")
    assert april.terms["brand"] == {"color": COLOR, "logo": logo.digest}
    a_brand(name="Other", color="#0b57a8", logo=a_picture(600, 200))
    made = bytes(issued.keep(april, moment=NOW).pdf)  # issued before the change, rendered after it
    assert pictures(made) == [(logo.width, logo.height)]
    assert b"0.47843" in contents(made)  # the red of #7a1f5c
    set_brand(name="", color="", logo=encode_logo(a_picture(64, 64)))
    assert bytes(InvoiceDocument.objects.get(invoice=april).pdf) == made == issued.made(april).pdf
    note = credit_notes.issue_credit_note(
        invoice=march, reason="Goodwill", by="op", on=NOW.date(), moment=NOW
    )
    assert pictures(issued.made(note).pdf) == [(56, 56)]  # without its margins


def pictures(pdf: bytes) -> list[tuple[int, int]]:
    return [picture.image.size for picture in PdfReader(io.BytesIO(pdf)).pages[0].images if picture.image]


def contents(pdf: bytes) -> bytes:
    stream = PdfReader(io.BytesIO(pdf)).pages[0].get_contents()
    assert stream is not None
    return stream.get_data()


@pytest.mark.django_db(transaction=True)
def test_emails_are_from_it_and_bring_its_logo_with_them(mailed: None, settings: Any) -> None:
    settings.DEFAULT_FROM_EMAIL = "ClusterTab <billing@cluster.example>"
    logo = a_brand(name='Müller & "Söhne"')
    house = a_house(close=False)
    stories.close("2026-03", house.vision, on="2026-04-01")
    issued.keep(house.invoice, moment=NOW)
    delivery.send_notices(moment=builders.at("2026-04-01 12:00"))
    invoice = next(one for one in mail.outbox if "INV-2026-0001" in one.subject)
    assert invoice.from_email == '"Müller & \\"Söhne\\"" <billing@cluster.example>'
    message = invoice.message()
    kinds = [part.get_content_type() for part in message.walk()]
    assert kinds[:6] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "multipart/related",
        "text/html",
        "image/png",
    ]
    assert "application/pdf" in kinds
    html, picture = list(message.walk())[4:6]
    assert picture.get_payload(decode=True) == logo.png
    assert picture["Content-ID"] == f"<{logo.digest}@logo>"
    text = text_of(html)
    assert f'src="cid:{logo.digest}@logo"' in text
    assert f"background:{COLOR}" in text
    assert "http://" not in text
    invitations.invite(
        tenant=house.vision,
        email="new@vision.example",
        role=Role.MEMBER,
        by=house.ann.email,
        moment=datetime.now(UTC),
    )
    send_due(moment=datetime.now(UTC))
    assert 'vision-lab on Müller & "Söhne"' in mail.outbox[-1].subject.replace("Vision Lab", "vision-lab")
    Client().post("/accounts/password/reset/", {"email": house.ann.email})
    reset = mail.outbox[-1]
    assert reset.subject == 'Müller & "Söhne": Set your password'
    assert str(reset.body).rstrip().endswith('Müller & "Söhne"')
    assert PRODUCT not in str(reset.body)
    set_brand(name="", color="", logo=encode_logo(a_picture(64, 64)))
    assert mail.outbox[-1].from_email == invoice.from_email


def text_of(part: Message) -> str:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()


@pytest.mark.django_db
def test_without_a_brand_all_is_as_it_was(mailed: None, settings: Any) -> None:
    house: House = a_house()
    assert "brand" not in house.invoice.terms
    assert brand.sender() == settings.DEFAULT_FROM_EMAIL
    text = page(house.ann, "/t/vision-lab/")
    assert "/brand/" not in text
    assert f"<span>{PRODUCT}</span>" in text


@pytest.mark.django_db
def test_a_configuration_file_says_the_same_and_is_refused_alike(tmp_path: Path) -> None:
    op = Op(tmp_path)
    (tmp_path / "logo.png").write_bytes(a_picture(600, 200))
    (tmp_path / "logo.svg").write_bytes(SVG)
    text = f'[brand]\nname = "{NAME}"\ncolor = "{COLOR}"\nlogo = "{tmp_path}/logo.png"\n'
    (new,) = op.applies(text)
    assert new.startswith(f"brand: new (name {NAME}, color {COLOR}, logo ")
    assert op.applies(text) == ["Nothing to change."]
    assert current_brand().is_wide
    assert op.applies('[brand]\ncolor = "#0b57a8"') == [f"brand: color {COLOR} -> #0b57a8"]
    assert current_brand().name == NAME
    assert op.is_refused('[brand]\ncolor = "#ff6600"\n[seller]\ncountry = "DE"') == [
        "brand: #ff6600 has a contrast of 2.93:1 on white, and text needs 4.5:1. The nearest shade with it is #c95100.",
        "seller: name is missing; invoices begin with it.",
    ]
    (svg,) = op.is_refused(f'[brand]\nlogo = "{tmp_path}/logo.svg"')
    assert svg.endswith("SVG is not accepted.")
    (missing,) = op.is_refused('[brand]\nlogo = "nowhere.png"')
    assert missing.endswith("logo names 'nowhere.png', which is no file.")
    assert op.applies('[brand]\nlogo = ""')[0].endswith(" -> nothing")
    assert not current_brand().logo
