"""The foot of the document: sums, taxes, and what was paid of it before it was issued."""

from __future__ import annotations

from .numbers import Stated, money, number, rounded, second

DAY = 24 * 3600


def of_foot(invoice: Stated) -> list[str]:
    """What is wrong with subtotal, taxes, total and what wallets paid."""
    wrong = []

    def of(amount: int) -> str:
        return money(amount, invoice)

    subtotal = sum(line["amount"] for line in invoice["lines"])
    if subtotal != invoice["subtotal"]:
        wrong.append(f"the lines add up to {of(subtotal)}, the subtotal says {of(invoice['subtotal'])}")
    stated = [(row["category"], row["rate"]) for row in invoice["taxes"]]
    if len({(category, number(rate)) for category, rate in stated}) != len(stated):
        wrong.append("one rate of tax has several sums, each of which is rounded")
    for category, rate in sorted({tuple(line["tax"]) for line in invoice["lines"]} - set(stated)):
        wrong.append(f"lines are taxed at {rate} % ({category}), of which the invoice has no sum")
    nets = sum(row["net"] for row in invoice["taxes"])
    if nets != invoice["subtotal"]:
        wrong.append(f"taxes are of {of(nets)} together, the subtotal says {of(invoice['subtotal'])}")
    tax = 0
    for row in invoice["taxes"]:
        same = [line for line in invoice["lines"] if line["tax"] == [row["category"], row["rate"]]]
        net = sum(line["amount"] for line in same)
        if net != row["net"]:
            wrong.append(f"{row['rate']} % is of {of(net)}, the invoice says {of(row['net'])}")
        tax += row["tax"]
        exact = net * number(row["rate"]) / 100
        due = rounded(exact, 0)
        # Of a credit note it is what is left of the invoice's: the difference of two that were rounded.
        if due != row["tax"] and not (invoice["credit_note"] and abs(exact - row["tax"]) <= 1):
            wrong.append(f"{row['rate']} % of {of(net)} is {of(due)}, the invoice says {of(row['tax'])}")
    if tax != invoice["tax"]:
        wrong.append(f"the taxes add up to {of(tax)}, the invoice says {of(invoice['tax'])}")
    if subtotal + tax != invoice["total"]:
        wrong.append(f"{of(subtotal)} and {of(tax)} do not add up to {of(invoice['total'])}")
    day, end = f"{invoice['issued_on']}T23:59:59Z", invoice["period"][1]
    if second(day) + DAY < second(end):  # wherever on earth that day is
        wrong.append(f"it was issued on {invoice['issued_on']}, before its period ended, {end}")
    return wrong + of_wallet(invoice)


def of_wallet(invoice: Stated) -> list[str]:
    """What a wallet paid of the total, grant by grant, and then a credit balance; taxes are on the full net.

    What a credit note gives back to a wallet is below zero, as its total is.
    """
    wrong = []
    drawn = sum(entry["amount"] for entry in invoice["wallet"])
    if not invoice["credit_note"] and drawn != invoice["prepaid"]:
        prepaid_text = money(invoice["prepaid"], invoice)
        wrong.append(
            f"the wallet's entries add up to {money(drawn, invoice)}, the invoice says {prepaid_text}"
        )
    before = invoice["prepaid"] + invoice["from_credit"]
    total, due = invoice["total"], invoice["due"]
    sign = -1 if invoice["credit_note"] else 1
    for name, paid in (("a wallet", invoice["prepaid"]), ("a credit balance", invoice["from_credit"])):
        if not 0 <= sign * paid <= max(sign * total, 0):
            wrong.append(f"{name} cannot pay {money(paid, invoice)} of {money(total, invoice)}")
    if total - before != due or sign * due < 0:
        wrong.append(
            f"{money(total, invoice)} less {money(before, invoice)} is not the {money(due, invoice)} that is due"
        )
    return wrong
