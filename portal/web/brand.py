"""The operator's brand: its page, which shows a change on itself before it holds, and the files that pages load."""

from __future__ import annotations

import base64
import re
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import condition, require_safe

from portal import colors
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.core.tenants.brand import (
    PRODUCT,
    CurrentBrand,
    check_brand,
    current_brand,
    forget_brand,
    load_logo,
    set_brand,
)
from portal.core.tenants.logos import LARGEST, BrandError, Logo, encode_logo
from portal.core.tenants.models.brand import LONGEST_NAME
from portal.sentences import sentence
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof

FOR_EVER = "public, max-age=31536000, immutable"
"""What stands under these addresses never changes: another content has another address."""


def shown_brand(request: HttpRequest) -> dict[str, CurrentBrand]:
    """The brand, for every template."""
    del request
    return {"brand": current_brand()}


def _styles_tag(request: HttpRequest, name: str) -> str:
    del request
    return f'"{name}"'


@require_safe
@condition(etag_func=_styles_tag)
def brand_styles(request: HttpRequest, name: str) -> HttpResponse:
    """The stylesheet of a color. It follows from its name alone, so a request learns nothing."""
    del request
    color = f"#{name[:6]}"
    if not colors.COLOR.match(color) or colors.contrast(color, colors.WHITE) < colors.TEXT:
        raise Http404("no color of a brand")
    if colors.stylesheet_name(color) != name:
        raise Http404("a stylesheet of another release")
    return HttpResponse(
        colors.stylesheet(color), content_type="text/css; charset=utf-8", headers={"Cache-Control": FOR_EVER}
    )


def _logo_tag(request: HttpRequest, digest: str) -> str:
    del request
    return f'"{digest}"'


@require_safe
@condition(etag_func=_logo_tag)
def brand_logo(request: HttpRequest, digest: str) -> HttpResponse:
    """A logo, the present one or one before it: the sign-in page shows it, so everybody may see it."""
    del request
    png = load_logo(digest) if re.fullmatch("[0-9a-f]{64}", digest, re.ASCII) else b""
    if not png:
        raise Http404("no such logo")
    return HttpResponse(png, content_type="image/png", headers={"Cache-Control": FOR_EVER})


@dataclass(frozen=True, kw_only=True)
class Swatch:
    """A color on its ground, and their contrast."""

    label: str
    color: str
    ground: str
    ratio: str


@dataclass(frozen=True, kw_only=True)
class BrandPage:
    name: str  # as it is typed
    color: str
    png: str  # of a logo that is not saved yet, in base64
    removes: bool
    has_logo: bool  # a saved one
    changes: Sequence[tuple[str, str, str]]  # previewed: what, before, after
    error: str
    swatches: Sequence[Swatch]
    longest: int = LONGEST_NAME
    product: str = PRODUCT
    largest: int = LARGEST >> 20  # MiB


@operator_page("brand", acts=Right.SETTINGS)
def operator_brand(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """The form; after *Preview* the whole page looks as all pages would; *Save* has it so."""
    forget_brand()  # who saved it sees it at once, in whichever process
    own = current_brand()
    values, logo, error = _typed(request, own), None, ""
    shown = own
    if request.method == "POST":
        try:
            logo = _sent_logo(request)
            shown = _proposed(own, values, logo)
            if request.POST.get("act") == "save":
                require_recent_proof(request)
                with acting_as(through="brand"):
                    set_brand(name=values["name"], color=values["color"], logo=logo)
                messages.success(request, _("The brand is saved. All pages show it within a few seconds."))
                return redirect("operator_brand")
        except BrandError as refusal:
            error = sentence(refusal)
    page = BrandPage(
        name=values["name"],
        color=values["color"],
        png=base64.b64encode(logo.png).decode() if logo else "",
        removes=logo is not None and not logo.png,
        has_logo=bool(own.logo),
        changes=[] if error else _changes(own, shown),
        error=error,
        swatches=_swatches(shown.color) if shown.color else [],
    )
    if request.method == "POST" and not error and not page.changes:
        messages.info(request, _("Nothing would change."))
    return render(request, "operator/brand.html", {"frame": frame, "page": page, "brand": shown})


def _typed(request: HttpRequest, own: CurrentBrand) -> dict[str, str]:
    saved = {"name": own.name if own.is_named else "", "color": own.color}
    if request.method != "POST":
        return saved
    return {name: request.POST.get(name, "").replace("\0", "").strip()[:200] for name in saved}


def _sent_logo(request: HttpRequest) -> Logo | None:
    """The file; else the one of the preview, which is encoded again; None where none was sent. Raises BrandError."""
    file = request.FILES.get("logo")
    if file is not None and file.size:
        if file.size > LARGEST:
            raise BrandError("logo-too-large", largest=LARGEST >> 20)
        return encode_logo(file.read())
    if request.POST.get("remove"):
        return Logo()
    if text := request.POST.get("png", ""):
        try:
            return encode_logo(base64.b64decode(text, validate=True))
        except Base64Error as error:
            raise BrandError("logo-unreadable") from error
    return None


def _proposed(own: CurrentBrand, values: Mapping[str, str], logo: Logo | None) -> CurrentBrand:
    """The brand as it would be. Raises BrandError."""
    columns = check_brand(**values)
    shown = replace(own, name=columns["name"] or PRODUCT, color=columns["color"] or "")
    if logo is None:
        return shown
    source = f"data:image/png;base64,{base64.b64encode(logo.png).decode()}" if logo.png else ""
    return replace(shown, logo=logo.digest, width=logo.width, height=logo.height, source=source)


def _changes(own: CurrentBrand, shown: CurrentBrand) -> list[tuple[str, str, str]]:
    rows = [
        (_("Name"), own.name, shown.name),
        (_("Color"), own.color or _("blue of ClusterTab"), shown.color or _("blue of ClusterTab")),
        (_("Logo"), _logo_text(own), _logo_text(shown)),
    ]
    return [row for row in rows if row[1] != row[2]]


def _logo_text(brand: CurrentBrand) -> str:
    if not brand.logo:
        return _("none")
    return f"{brand.width} × {brand.height}, SHA-256 {brand.logo[:12]}…"


def _swatches(color: str) -> list[Swatch]:
    """What becomes of the color in both themes."""
    own = colors.palette(color)
    grounds = (
        (_("Buttons, light theme"), colors.WHITE, own.fill),
        (_("Links, light theme"), own.accent, colors.LIGHT_GROUND),
        (_("Buttons, dark theme"), colors.WHITE, own.fill_dark),
        (_("Links, dark theme"), own.accent_dark, colors.DARK_GROUND),
        (_("Menu"), colors.WHITE, own.current),
    )
    return [
        Swatch(label=label, color=text, ground=ground, ratio=colors.written_ratio(text, ground))
        for label, text, ground in grounds
    ]
