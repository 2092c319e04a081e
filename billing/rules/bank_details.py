"""Being paid by bank transfer: where to, under which reference, and as a code that banking apps read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from stdnum import iban as ibans

from billing.rules.money import Money
from billing.rules.references import creditor_reference, in_groups

_NAME = 70  # characters of a name in the code
_MOST = Money.of("999999999.99", "EUR")


@dataclass(frozen=True, slots=True)
class BankDetails:
    """How something is paid by bank transfer; what the seller has not set is ""."""

    holder: str
    iban: str  # in groups of four
    bic: str
    reference: str  # as it is printed
    code: tuple[str, ...]  # rows of a QR code, "1" where it is dark; none where no code can say it


def bank_details(*, seller: Mapping[str, str], name: str, amount: Money | None) -> BankDetails | None:
    """How `amount` is paid for what is called `name`; None where the seller has no account, or nothing is to be paid.

    `amount` None: the payer says how much, and no code can say it. `seller`: as it is frozen on an invoice. A name
    that is no part of a creditor reference is the reference itself.
    """
    account = seller.get("iban", "").replace(" ", "").upper()
    if not account or (amount is not None and amount.amount <= 0):
        return None
    reference = creditor_reference(name)
    bic = seller.get("bic", "").replace(" ", "").upper()
    return BankDetails(
        holder=seller["name"],
        iban=in_groups(account),
        bic=bic,
        reference=in_groups(reference) if reference else name,
        code=_code(seller["name"], account, bic, reference, name, amount) if amount is not None else (),
    )


def _code(holder: str, account: str, bic: str, reference: str, name: str, amount: Money) -> tuple[str, ...]:
    """EPC069-12, version 002: a SEPA transfer. Only euros, and only to an account that can be one."""
    if amount.currency != "EUR" or amount > _MOST or not ibans.is_valid(account):
        return ()
    from segno import helpers  # for those who show one

    purpose = {"reference": reference} if reference else {"text": name[:140]}
    code = helpers.make_epc_qr(
        name=holder.strip()[:_NAME],
        iban=account,
        amount=Decimal(amount.text),
        bic=bic if len(bic) in {8, 11} else None,
        encoding="utf-8",
        **purpose,
    )
    return tuple("".join("1" if dark else "0" for dark in row) for row in code.matrix)


def drawn(code: tuple[str, ...]) -> str:
    """The dark places as one path of SVG, in places; "" for no code."""
    pieces = []
    for y, row in enumerate(code):
        x = row.find("1")
        while x >= 0:
            end = row.find("0", x)
            end = len(row) if end < 0 else end
            pieces.append(f"M{x} {y}h{end - x}v1h{x - end}z")
            x = row.find("1", end)
    return "".join(pieces)
