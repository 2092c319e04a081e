"""Bank statements in ISO 20022, camt.053: versions .001.02 to .001.13, as banks send them.

Read by lxml without entities, document types or network. Elements are looked up by their local names, since versions
differ in little else than where a name or a state stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

from billing.bank_transfers.entities import (
    MOST_BYTES,
    NAME,
    RAW,
    TEXT,
    BadEntry,
    Entry,
    Statement,
    StatementError,
    clean_reference,
)
from billing.rules.bank_entries import EntryError
from billing.rules.errors import RuleError
from billing.rules.money import Money, is_currency
from portal.excerpt import excerpt, quoted

_VERSION = re.compile(r"urn:iso:std:iso:20022:tech:xsd:(camt\.\d{3})\.001\.(\d{2})")
_OTHERS = {"camt.052": "a report within the day", "camt.054": "a notification"}
_AMOUNT = re.compile(r"\d{1,15}(\.\d{1,5})?", re.ASCII)

Node = Any  # an element of lxml, which has no types


def read_camt(data: bytes, *, account: str = "", unchecked: bool = False) -> list[Statement]:
    """The statements of a file that are of `account`, or all where it is "".

    `unchecked`: one without opening or closing balance is read, too. StatementError where it is none, is about other
    accounts alone, or does not add up.
    """
    nodes = [
        node
        for document in _list_documents(_parse_root(data))
        for node in _all(document, "BkToCstmrStmt", "Stmt")
    ]
    if not nodes:
        raise StatementError("camt-empty")
    accounts = [_account(node) for node in nodes]
    if account and account not in accounts:
        others = excerpt(", ".join(dict.fromkeys(accounts)))
        raise StatementError("other-account-than-invoices", accounts=others, account=account)
    chosen = zip(accounts, nodes, strict=True)
    return [_read_statement(node, own, unchecked) for own, node in chosen if account in {"", own}]


def _list_documents(root: Node) -> list[Node]:
    """The document, or those in an envelope, as some banks and services wrap them."""
    marked = [
        (node, match) for node in root.iter("{*}Document") if (match := _VERSION.fullmatch(_namespace(node)))
    ]
    if not marked:
        raise StatementError("camt-other-xml")
    for _, match in marked:
        if match[1] != "camt.053" or not 2 <= int(match[2]) <= 13:
            what = _OTHERS.get(match[1], f"version {match[2]} of {match[1]}")
            raise StatementError("camt-other-kind", what=what)
    return [node for node, _ in marked]


def _namespace(node: Node) -> str:
    return node.nsmap.get(node.prefix) or ""


def _account(node: Node) -> str:
    account = _text(node, "Acct", "Id", "IBAN") or _text(node, "Acct", "Id", "Othr", "Id")
    if not account:
        raise StatementError("camt-without-account", name=_text(node, "Id")[:NAME])
    return "".join(account.split()).upper()


def _parse_root(data: bytes) -> Node:
    from lxml import etree  # 8 MiB, for those who import statements

    if len(data) > MOST_BYTES:
        raise StatementError("file-too-large", most=MOST_BYTES >> 20)
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_comments=True,
        remove_pis=True,
    )  # fmt: skip
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise StatementError("camt-unreadable", reason=excerpt(error.msg)) from error
    if root.getroottree().docinfo.doctype:
        raise StatementError("camt-doctype")
    return root


def _read_statement(node: Node, account: str, unchecked: bool) -> Statement:
    name = _text(node, "Id")[:NAME]
    opening, closing, currency = _read_balances(node, name, unchecked)
    entries: list[Entry] = []
    bad: list[BadEntry] = []
    moved = pending = 0
    for place, node_of_entry in enumerate(_all(node, "Ntry"), 1):
        if _state(node_of_entry) != "BOOK":
            pending += 1
            continue
        try:
            amount = _signed(node_of_entry, currency)
            moved += amount
            entries += _read_entries(node_of_entry, amount, currency)
        except RuleError as error:
            bad.append(BadEntry(place=f"entry {place}", error=error, raw=_raw(node_of_entry)))
    if opening is not None and closing is not None and opening + moved != closing:
        raise StatementError(
            "camt-sums",
            name=name,
            opening=_money(opening, currency),
            moved=_money(moved, currency),
            closing=_money(closing, currency),
        )
    return Statement(
        account=account,
        currency=currency,
        name=name,
        form="camt",
        opening=opening,
        closing=closing,
        entries=tuple(entries),
        bad=tuple(bad),
        pending=pending,
    )


def _read_balances(node: Node, name: str, unchecked: bool) -> tuple[int | None, int | None, str]:
    """Opening, closing and their currency; none where one of both is missing, and somebody says that it may."""
    opening = _read_balance(node, name, ("OPBD", "PRCD"))
    closing = _read_balance(node, name, ("CLBD",))
    if opening is not None and closing is not None:
        return opening[0], closing[0], opening[1]
    if not unchecked:
        kind = "OPBD" if opening is None else "CLBD"
        raise StatementError("camt-balance-missing", name=name, kind=kind)
    amounts = (_child(amount, "Amt") for kind in ("Bal", "Ntry") for amount in _all(node, kind))
    units = (amount.get("Ccy", "") for amount in amounts if amount is not None)
    currency = _text(node, "Acct", "Ccy") or next(units, "")
    if currency and not is_currency(currency):
        raise StatementError("camt-currency", name=name, currency=quoted(currency))
    return None, None, currency


def _read_balance(node: Node, name: str, kinds: tuple[str, ...]) -> tuple[int, str] | None:
    by_kind = {
        _text(balance, "Tp", "CdOrPrtry", "Cd"): balance for balance in reversed(list(_all(node, "Bal")))
    }
    for kind in kinds:
        if kind in by_kind:
            amount = _child(by_kind[kind], "Amt")
            currency = "" if amount is None else amount.get("Ccy", "")
            try:
                return _signed(by_kind[kind], currency), currency
            except RuleError as error:
                raise StatementError("camt-entry", name=name, reason=error) from error
    return None


def _read_entries(node: Node, amount: int, currency: str) -> list[Entry]:
    """The transfers of an entry: one, or those of a batch where it says what each comes to."""
    text = _text(node, "BookgDt", "Dt") or _text(node, "BookgDt", "DtTm")[:10]
    try:
        booked_on = date.fromisoformat(text[:10])
    except ValueError as error:
        raise EntryError("booked-on-no-day", text=quoted(text)) from error
    if not amount:
        raise EntryError("no-amount")
    details = [detail for group in _all(node, "NtryDtls") for detail in _all(group, "TxDtls")]
    back = _text(node, "RvslInd") in {"true", "1"} or any(
        _child(detail, "RtrInf") is not None for detail in details
    )
    common: dict[str, Any] = {"currency": currency, "booked_on": booked_on, "reversal": back}
    name = _text(node, "AcctSvcrRef")
    amounts = [_part_amount(detail, currency, amount) for detail in details]
    parts = [detail for detail in amounts if detail is not None]
    if len(details) > 1 and len(parts) == len(details) and sum(parts) == amount and all(parts):
        return [
            Entry(
                amount=part,
                bank_reference=_entry_reference(_text(detail, "Refs", "AcctSvcrRef"), name, place),
                raw=_raw(detail),
                **(common | _remittance([detail], part, back)),
            )
            for place, (detail, part) in enumerate(zip(details, parts, strict=True), 1)
        ]
    name = name or next((own for detail in details if (own := _text(detail, "Refs", "AcctSvcrRef"))), "")
    fields = _remittance(details, amount, back)
    if not fields["text"]:
        fields["text"] = _text(node, "AddtlNtryInf")[:TEXT]
    return [
        Entry(amount=amount, bank_reference=clean_reference(name)[:NAME], raw=_raw(node), **(common | fields))
    ]


def _entry_reference(own: str, batch: str, place: int) -> str:
    """The bank's name for one transfer of a batch."""
    if clean_reference(own) and own != batch:
        return own[:NAME]
    return f"{batch} {place}"[:NAME] if clean_reference(batch) else ""


def _remittance(details: list[Node], amount: int, reversal: bool) -> dict[str, Any]:
    """Who the other side is, and what was written; of several transfers, what all of them wrote."""
    side = "Dbtr" if amount > 0 or reversal else "Cdtr"
    lines: list[str] = []
    names: list[str] = []
    fields = {"payer_iban": "", "reference": "", "end_to_end": ""}
    for node in details:
        parties = _child(node, "RltdPties")
        names.append(_text(parties, side, "Nm") or _text(parties, side, "Pty", "Nm"))
        fields["payer_iban"] = fields["payer_iban"] or _text(parties, f"{side}Acct", "Id", "IBAN")[:42]
        fields["end_to_end"] = (
            fields["end_to_end"] or clean_reference(_text(node, "Refs", "EndToEndId"))[:NAME]
        )
        written = _child(node, "RmtInf")
        lines += [_squeeze(element.text) for element in _all(written, "Ustrd")]
        for element in _all(written, "Strd"):
            reference = _text(element, "CdtrRefInf", "Ref")
            fields["reference"] = fields["reference"] or reference[:NAME]
            lines += [reference, *(_squeeze(more.text) for more in _all(element, "AddtlRmtInf"))]
    payer = ", ".join(dict.fromkeys(name for name in names if name))
    return fields | {"payer": payer[:NAME], "text": "\n".join(line for line in lines if line)[:TEXT]}


def _part_amount(node: Node, currency: str, whole: int) -> int | None:
    """What one of several comes to; None where it does not say it in the account's currency."""
    for path in (("Amt",), ("AmtDtls", "TxAmt", "Amt"), ("AmtDtls", "InstdAmt", "Amt")):
        amount = _child(node, *path)
        if amount is not None and amount.get("Ccy") == currency:
            try:
                minor = _minor(amount.text, currency)
            except ValueError:
                return None
            return (
                -minor if (_text(node, "CdtDbtInd") or ("CRDT" if whole > 0 else "DBIT")) == "DBIT" else minor
            )
    return None


def _signed(node: Node, currency: str) -> int:
    amount, way = _child(node, "Amt"), _text(node, "CdtDbtInd")
    if amount is None or way not in {"CRDT", "DBIT"}:
        raise EntryError("amount-missing")
    if amount.get("Ccy") != currency or not is_currency(currency):
        raise EntryError("currency-of-another-account", currency=excerpt(amount.get("Ccy")))
    minor = _minor(amount.text, currency)
    return minor if way == "CRDT" else -minor


def _minor(text: str | None, currency: str) -> int:
    amount = (text or "").strip()
    if not _AMOUNT.fullmatch(amount):
        raise EntryError("amount-no-number", text=quoted(amount))
    return Money.of(amount, currency).minor


def _state(node: Node) -> str:
    return _text(node, "Sts", "Cd") or _text(node, "Sts")


def _money(minor: int, currency: str) -> str:
    return f"{Money.from_minor(minor, currency).text} {currency}"


def _all(node: Node, *path: str) -> Iterator[Node]:
    """The elements at the end of the path; none where there is no way."""
    *way, last = path
    parent = _child(node, *way) if way else node
    if parent is not None:
        yield from parent.iterchildren(f"{{*}}{last}")


def _child(node: Node, *path: str) -> Node:
    for name in path:
        node = None if node is None else next(node.iterchildren(f"{{*}}{name}"), None)
    return node


def _text(node: Node, *path: str) -> str:
    child = _child(node, *path)
    return "" if child is None else _squeeze(child.text)


def _squeeze(text: str | None) -> str:
    return " ".join((text or "").replace("\0", "").split())


def _raw(node: Node) -> str:
    from lxml import etree

    text: str = etree.tostring(node, encoding="unicode", with_tail=False)
    return text[:RAW]
