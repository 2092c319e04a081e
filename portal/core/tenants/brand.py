"""The operator's own name, color and logo: changed by one use case, and read by every page, e-mail and document."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parseaddr, quote

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from portal import colors
from portal.core.tenants.logos import BrandError, Logo
from portal.core.tenants.models import Brand, BrandLogo
from portal.core.tenants.models.brand import LONGEST_NAME
from portal.excerpt import quoted

PRODUCT = "ClusterTab"
COLOR = "#0a6ebd"  # of e-mails, where the operator has none
SECONDS = 5.0
"""For so long a process shows the brand that it has read: pages ask for it without a query."""
WIDE = 2  # times as wide as high: such a logo has the name in it, so pages do not write it beside


@dataclass(frozen=True, slots=True)
class CurrentBrand:
    """What stands where people would else read ClusterTab. `logo` is a digest, "" for none."""

    name: str = PRODUCT
    color: str = ""
    logo: str = ""
    width: int = 0
    height: int = 0
    source: str = ""  # where a logo that is not stored yet is read from

    @property
    def is_named(self) -> bool:
        return self.name != PRODUCT

    @property
    def is_wide(self) -> bool:
        return self.width > WIDE * self.height

    @property
    def styles(self) -> str:
        """The name of its stylesheet; "" for our own colors."""
        return colors.stylesheet_name(self.color) if self.color else ""

    @property
    def icon(self) -> str:
        """The logo that tabs of browsers show; "" for ours."""
        return "" if self.is_wide or self.source else self.logo

    @property
    def small(self) -> tuple[int, int]:
        """Width and height of the logo in the head of a page."""
        return self._fitted(160, 32)

    @property
    def large(self) -> tuple[int, int]:
        """Width and height of the logo above the sign-in form, and in e-mails."""
        return self._fitted(240, 48)

    def _fitted(self, width: int, height: int) -> tuple[int, int]:
        if self.width * height > self.height * width:
            return width, max(self.height * width // self.width, 1)
        return max(self.width * height // self.height, 1), height


@dataclass
class _Memory:
    """What this process has read, and until when it need not ask again."""

    brand: CurrentBrand = CurrentBrand()
    until: float = 0.0


_memory = _Memory()


def current_brand() -> CurrentBrand:
    """The brand, at most five seconds old. One query where it is older, else none.

    Raises DatabaseError inside a transaction: all of it is undone, and COMMIT would not say so.
    """
    if time.monotonic() >= _memory.until:
        try:
            remember(load_brand())
        except DatabaseError:
            if connection.in_atomic_block:
                raise
            return _memory.brand  # a page without its logo is better than none
    return _memory.brand


def last_brand() -> CurrentBrand:
    """What this process has read last: for the page that says that something broke. No query."""
    return _memory.brand


def load_brand() -> CurrentBrand:
    """As the database has it now. One query."""
    values = Brand.objects.values_list("name", "color", "logo_id", "logo__width", "logo__height").first()
    if values is None:
        return CurrentBrand()
    name, color, logo, width, height = values
    return CurrentBrand(name or PRODUCT, color, logo or "", width or 0, height or 0)


def remember(brand: CurrentBrand, *, seconds: float = SECONDS) -> None:
    """Have this process show it for so long without asking."""
    _memory.brand, _memory.until = brand, time.monotonic() + seconds


def forget_brand() -> None:
    """Have this process read it again."""
    _memory.until = 0.0


@transaction.atomic
def set_brand(*, name: str | None = None, color: str | None = None, logo: Logo | None = None) -> Brand:
    """Have the brand be so. None leaves a part as it is; "" and a logo without bytes make it ClusterTab's again.

    Said again, nothing changes. Documents that were issued keep the color and the logo that they were issued with.
    Raises BrandError.
    """
    values = check_brand(name=name, color=color)
    if logo is not None:
        values["logo_id"] = _keep(logo)
    with connection.cursor() as cursor:  # two at once are one after the other, also where there is no row yet
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('brand', 0))")
    row = Brand.objects.first()
    is_new, row = row is None, row or Brand()
    differing = {column: value for column, value in values.items() if getattr(row, column) != value}
    if differing:
        for column, value in differing.items():
            setattr(row, column, value)
        row.save(force_insert=is_new)
        forget_brand()
        transaction.on_commit(forget_brand)
    return row


def check_brand(*, name: str | None, color: str | None) -> dict[str, str | None]:
    """By column what is stored. Raises BrandError."""
    values: dict[str, str | None] = {}
    if name is not None:
        values["name"] = "" if name.strip() == PRODUCT else _name(name.strip())
    if color is not None:
        values["color"] = _color(color.strip().lower())
    return values


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise BrandError("name-too-long", longest=LONGEST_NAME, length=len(text))
    if not text.isprintable():
        raise BrandError("name-unprintable")
    return text


def _color(text: str) -> str:
    if not text:
        return ""
    if not colors.COLOR.match(text):
        raise BrandError("color-unreadable", text=quoted(text))
    if colors.contrast(text, colors.WHITE) < colors.TEXT:
        nearest = colors.shade(text, colors.BLACK, ground=colors.WHITE, ratio=colors.TEXT)
        ratio = colors.written_ratio(text, colors.WHITE)
        raise BrandError("color-pale", color=text, ratio=ratio, nearest=nearest)
    return text


def _keep(logo: Logo) -> str | None:
    """Its digest, under which it is stored once."""
    if not logo.png:
        return None
    values = {"png": logo.png, "width": logo.width, "height": logo.height}
    row, _is_new = BrandLogo.objects.get_or_create(digest=logo.digest, defaults=values)
    return row.digest


def frozen_brand() -> dict[str, dict[str, str]]:
    """What a document keeps of it from its issue on; nothing where all is ours. One query."""
    own = load_brand()
    values = {"color": own.color, "logo": own.logo}
    return {"brand": values} if any(values.values()) else {}


def load_logo(digest: str) -> bytes:
    """The PNG; b"" where there is none of this digest. One query, or none."""
    png = BrandLogo.objects.filter(digest=digest).values_list("png", flat=True).first() if digest else None
    return bytes(png or b"")


def sender() -> str:
    """Whom e-mails are from: the address of the settings, under the operator's name where it has one."""
    own = current_brand()
    if not own.is_named:
        return settings.DEFAULT_FROM_EMAIL
    address = parseaddr(settings.DEFAULT_FROM_EMAIL)[1]
    return f'"{quote(own.name)}" <{address}>'
