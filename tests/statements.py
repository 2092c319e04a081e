"""Bank statements as banks write them, and an invoice of 20.00 that they pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from xml.sax.saxutils import escape

from billing.bank_transfers import statement_import
from billing.bank_transfers.statement_import import ImportResult
from billing.invoicing import offboarding
from billing.models import Invoice, Transfer
from billing.receivables import settlement
from billing.rules.references import creditor_reference
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.stories import close, invoice_of

IBAN = "DE89370400440532013000"
PAYER = "DE75512108001245126199"
APRIL = at("2026-04-09 08:00")


@dataclass(kw_only=True)
class Line:
    """An entry of a statement; `parts` are the transfers of a batch."""

    amount: str  # "-20.00" left the account
    text: str = ""
    reference: str = ""  # creditor reference, in its own field
    name: str = ""  # the bank's own reference
    end_to_end: str = "NOTPROVIDED"
    payer: str = "Vision Lab"
    iban: str = PAYER
    on: str = "2026-04-08"
    state: str = "BOOK"
    reversal: bool = False
    returned: str = ""  # the reason's code
    currency: str = ""
    parts: Sequence[Line] = field(default_factory=tuple)


def camt(
    *lines: Line,
    version: str = "08",
    currency: str = "EUR",
    opening: str = "1000.00",
    closing: str = "",
    account: str = IBAN,
    name: str = "2026-04-08",
) -> bytes:
    """A file of one statement, which adds up unless `closing` is said."""
    moved = sum(cents(line.amount) for line in lines if line.state == "BOOK")
    closing = closing or decimal(cents(opening) + moved)
    body = "".join(_entry(line, version, line.currency or currency) for line in lines)
    balances = _balance("OPBD", opening, currency) + _balance("CLBD", closing, currency)
    return (
        f'<?xml version="1.0"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.{version}">'
        f"<BkToCstmrStmt><GrpHdr><MsgId>1</MsgId></GrpHdr><Stmt><Id>{name}</Id><Acct><Id><IBAN>{account}</IBAN></Id></Acct>"
        f"{balances}{body}</Stmt></BkToCstmrStmt></Document>"
    ).encode()


def cents(amount: str) -> int:
    return int(amount.replace(".", ""))


def decimal(minor: int) -> str:
    sign = "-" if minor < 0 else ""
    return f"{sign}{abs(minor) // 100}.{abs(minor) % 100:02d}"


def _balance(kind: str, amount: str, currency: str) -> str:
    kinds = f"<Tp><CdOrPrtry><Cd>{kind}</Cd></CdOrPrtry></Tp>"
    return f"<Bal>{kinds}{_amount(amount, currency)}<Dt><Dt>2026-04-08</Dt></Dt></Bal>"


def _amount(amount: str, currency: str) -> str:
    way = "DBIT" if amount.startswith("-") else "CRDT"
    return f'<Amt Ccy="{currency}">{amount.lstrip("-")}</Amt><CdtDbtInd>{way}</CdtDbtInd>'


def _entry(line: Line, version: str, currency: str) -> str:
    state = f"<Sts><Cd>{line.state}</Cd></Sts>" if int(version) >= 8 else f"<Sts>{line.state}</Sts>"
    parts = "".join(_details(part, version, currency, whole=False) for part in line.parts)
    return (
        f"<Ntry>{_amount(line.amount, currency)}"
        + ("<RvslInd>true</RvslInd>" if line.reversal else "")
        + f"{state}<BookgDt><Dt>{line.on}</Dt></BookgDt><ValDt><Dt>{line.on}</Dt></ValDt>"
        + (f"<AcctSvcrRef>{line.name}</AcctSvcrRef>" if line.name else "")
        + f"<NtryDtls>{parts or _details(line, version, currency, whole=True)}</NtryDtls></Ntry>"
    )


def _details(line: Line, version: str, currency: str, *, whole: bool) -> str:
    nested = ("<Pty>", "</Pty>") if int(version) >= 8 else ("", "")
    side = "Cdtr" if line.amount.startswith("-") and not line.reversal and not line.returned else "Dbtr"
    own = f"<AcctSvcrRef>{line.name}</AcctSvcrRef>" if line.name and not whole else ""
    amount = "" if whole else _amount(line.amount, currency)
    strd = f"<Strd><CdtrRefInf><Ref>{line.reference}</Ref></CdtrRefInf></Strd>" if line.reference else ""
    texts = "".join(f"<Ustrd>{escape(piece)}</Ustrd>" for piece in line.text.split("\n") if piece)
    back = f"<RtrInf><Rsn><Cd>{line.returned}</Cd></Rsn></RtrInf>" if line.returned else ""
    return (
        f"<TxDtls><Refs>{own}<EndToEndId>{line.end_to_end}</EndToEndId></Refs>{amount}"
        f"<RltdPties><{side}>{nested[0]}<Nm>{escape(line.payer)}</Nm>{nested[1]}</{side}>"
        f"<{side}Acct><Id><IBAN>{line.iban}</IBAN></Id></{side}Acct></RltdPties>"
        f"<RmtInf>{texts}{strd}</RmtInf>{back}</TxDtls>"
    )


def imported(data: bytes, *, moment: datetime = APRIL, preview: bool = False) -> ImportResult:
    return statement_import.import_statement(
        data=data, name="april.xml", by="op", moment=moment, preview=preview
    )


def a_lab(
    name: str = "vision-lab", account: str = "vision", *, gpus: int = 10, currency: str = "EUR"
) -> Tenant:
    """A tenant whose March comes to two euros for each of so many GPUs."""
    a_seller(iban=IBAN, bic="COBADEFFXXX")
    cluster = a_cluster(complete_through="2026-05-01")
    plan = (
        a_plan(f"plan-{currency}", currency=currency)
        if name == "vision-lab"
        else a_plan(name, currency=currency)
    )
    lab = a_tenant(name, plan=plan, accounts=[(cluster, account)])
    ingest(cluster, a_job(account=account, gpus=gpus))
    close("2026-03", lab)
    return lab


def leaves(lab: Tenant) -> None:
    """Its plan and its accounts end in May, of which nothing is left to bill."""
    offboarding.end_services(tenant=lab, at=at("2026-05-10 00:00"))
    close("2026-04", lab, on="2026-05-11")
    close("2026-05", lab, on="2026-06-01")


def reference(invoice: Invoice) -> str:
    return creditor_reference(invoice.number or "")


def stands(invoice: Invoice) -> tuple[str, str, str]:
    """How it stands on the day, what is paid, and what is due."""
    balance = settlement.load_balance(invoice=invoice, on=APRIL.date())
    return balance.settlement.value, balance.paid.text, balance.due.text


def march(lab: Tenant) -> Invoice:
    return invoice_of(lab, "2026-03")


def transfers(*, state: str = "") -> list[tuple[str, str, str]]:
    """Each transfer as (amount, state, why), in the order in which they came."""
    rows = Transfer.objects.filter(state=state) if state else Transfer.objects.all()
    return [(decimal(row.amount), row.state, row.reason) for row in rows.order_by("pk")]
