"""The German catalog, locale/de/LC_MESSAGES/django.po: brought to what templates and code say.

`python -m portal.dev.catalog` adds what is new without a translation, and drops what nobody says any more. What only
operators read is left out: it stays English.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[2]
GERMAN = ROOT / "locale" / "de" / "LC_MESSAGES" / "django.po"
KEYWORDS: dict[str, tuple[int | tuple[int, str], ...] | None] = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop"), None),
    **dict.fromkeys(("ngettext", "_n"), (1, 2)),
    "pgettext": ((1, "c"), 2),
}
FOR_OPERATORS = "Operators alone read it: it stays English."
"""The comment of a string that has no German although it stands among those of tenants."""
OPERATORS_TEMPLATES = (
    "allauth/elements/button.html",
    "allauth/layouts/",
    "operator/",
    "admin/",
    "api_area.html",
    "api_reference.html",
    "_api_fields.html",
)
PACKAGES = (
    "portal/api/keys.py",
    "portal/web",
    "portal/core",
    "portal/days.py",
    "portal/languages.py",
    "portal/sentences.py",
    "portal/ops/accounts.py",
    "portal/ops/cli.py",
    "clusters/absent_records.py",
    "billing",
)
OPERATORS_CODE = (
    *(
        "billing/admin/",
        "billing/bank_transfers/",
        "billing/limits/obstacles.py",
        "billing/waste/messages.py",
        "billing/service_credits/",
        "billing/catalog/messages.py",
        "billing/invoicing/messages.py",
    ),
    *(
        "billing/reports/messages.py",
        "billing/rules/bank_entries.py",
        "portal/core/tenants/sign_on_messages.py",
        "portal/core/tenants/brand_messages.py",
    ),
    *(
        "api_reference",
        "api_server",
        "bank_transfer",
        "bills",
        "blocks",
        "brand",
        "close_",
        "closing",
        "clusters",
        "curves",
        "draft_documents",
        "focus_exports",
        "quota_terms_form",
        "sign_ups",
        "waste_form",
    ),
    *(
        "invoice_acts",
        "job_acts",
        "limits",
        "meters",
        "nodes",
        "onboarding",
        "operator",
        "payouts",
        "plan_controls",
        "plan_editor",
        "plan_effect",
        "plan_form",
        "plan_labels",
        "plan_previews",
        "plan_templates",
        "previews",
    ),
    *(
        "receivables",
        "reconciliation",
        "seal_confirmation",
        "sealed_months",
        "statement_upload",
        "support_views",
        "tenant_acts",
        "tenant_credit",
    ),
    *(
        "tenant_notes",
        "tenant_plan",
        "tenant_tokens",
        "transfers",
        "usage_acts",
        "usage_files",
        "watermark",
        "recent_proof",
    ),
)
"""Paths, or the beginnings of names of modules in portal/web, that only operators read."""


def is_for_operators(path: str) -> bool:
    """Of a path below the root."""
    if path.startswith("templates/"):
        return path.removeprefix("templates/").startswith(OPERATORS_TEMPLATES)
    short = path.removeprefix("portal/web/")
    names = tuple(name for name in OPERATORS_CODE if ("/" in name) == (short == path))
    return short.startswith(names)


def sources() -> Iterator[Path]:
    """The files whose strings are translated, in order."""
    code = [path for name in PACKAGES for path in _python(ROOT / name)]
    templates = [path for path in (ROOT / "templates").rglob("*") if path.suffix in {".html", ".txt"}]
    for path in sorted([*code, *templates]):
        if not is_for_operators(path.relative_to(ROOT).as_posix()):
            yield path


def _python(path: Path) -> list[Path]:
    return [path] if path.is_file() else [one for one in path.rglob("*.py") if "migrations" not in one.parts]


def extract_messages() -> Catalog:
    """All messages of the sources, without translations."""
    catalog = Catalog(locale="de", charset="utf-8", header_comment="# The German of ClusterTab.")
    for name, message, context in marked():
        catalog.add(message, locations=[(name, 0)], context=context)
    return catalog


def marked() -> Iterator[tuple[str, str | tuple[str, ...], str | None]]:
    """Each string of the sources that is marked, with its file and context; of one in two forms both."""
    for path in sources():
        text = path.read_text("utf-8")
        if path.suffix != ".py":
            text = templatize(text)
        name = path.relative_to(ROOT).as_posix()
        for _line, message, _comments, context in extract("python", BytesIO(text.encode()), KEYWORDS):
            yield name, message, context


def read_catalog() -> Catalog:
    """The committed one."""
    with GERMAN.open("rb") as source:
        return read_po(source, locale="de")


def merged(messages: Catalog, translations: Catalog) -> Catalog:
    """The messages, each with its translation where there is one."""
    result = Catalog(
        locale="de",
        charset="utf-8",
        header_comment=messages.header_comment,
        project="ClusterTab",
        version="1",
    )
    for message in sorted((one for one in messages if one.id), key=_order):
        before = translations.get(_first(message), message.context)
        string = before.string if before is not None and _fits(message, before) else None
        comments = before.user_comments if before is not None else ()
        result.add(message.id, string, flags=message.flags, user_comments=comments, context=message.context)
    return result


def missing(catalog: Catalog) -> list[str]:
    """What has no translation and needs one."""
    return [
        _first(message)
        for message in catalog
        if message.id and not _is_translated(message) and FOR_OPERATORS not in message.user_comments
    ]


def _fits(message: Message, before: Message) -> bool:
    return isinstance(message.id, str) == isinstance(before.string, str)


def _is_translated(message: Message) -> bool:
    strings = (message.string,) if isinstance(message.string, str) else message.string or ()
    return bool(strings) and all(strings) and not message.fuzzy


def _first(message: Message) -> str:
    return message.id if isinstance(message.id, str) else message.id[0]


def _order(message: Message) -> tuple[str, str]:
    return _first(message), message.context or ""


def as_text(catalog: Catalog) -> str:
    """As the file has it."""
    target = BytesIO()
    write_po(target, catalog, width=0, no_location=True, omit_header=False)
    lines = target.getvalue().decode().splitlines()
    dated = (
        "PO-Revision-Date",
        "POT-Creation-Date",
        "Generated-By",
        "Last-Translator",
        "Language-Team",
        "Report-Msgid",
    )
    undated = [line for line in lines if not line.removeprefix('"').startswith(dated)]
    return "\n".join(undated).strip() + "\n"


def main() -> int:
    translations = read_catalog() if GERMAN.exists() else Catalog(locale="de")
    catalog = merged(extract_messages(), translations)
    GERMAN.write_text(as_text(catalog), "utf-8")
    without = missing(catalog)
    report = StringIO()
    report.write(f"{len(catalog)} strings, {len(without)} without German\n")
    report.writelines(f"  {text}\n" for text in without[:20])
    sys.stdout.write(report.getvalue())
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
