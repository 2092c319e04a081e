"""What each line comes to, and the foot of the document: computed anew from what stands behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

from .numbers import Stated, money, number, rounded

HOUR = 3600
TERMS = ("fee", "commitment", "discount")  # of the plan, in the order in which they are charged


def recompute(invoice: Stated, held: Mapping[str, Fraction]) -> list[str]:
    """Sentences for all that does not come out as the document says; `held` is what jobs held, by line."""
    same: dict[tuple[str, ...], list[Stated]] = {}
    for line in invoice["lines"]:
        same.setdefault(subject(line), []).append(line)
    wrong: list[str] = []
    for line in invoice["lines"]:
        if line["kind"] == "usage":
            seconds = held.get(str(line["position"]), Fraction(0))
            wrong += of_line(line, same[subject(line)], seconds, invoice)
        elif line["kind"] in TERMS:
            wrong += of_term(line, same[subject(line)], invoice)
    wrong += of_allowances(invoice)
    if invoice["credit_note"]:
        wrong += of_originals(invoice)
    return [*dict.fromkeys(wrong), *of_foot(invoice)]


def of_originals(invoice: Stated) -> list[str]:
    """A credit note takes back from lines of its invoice, and from none more than it billed."""
    taken: dict[int, int] = {}
    billed: dict[int, int] = {}
    wrong = []
    for line in invoice["lines"]:
        original = line["original"]
        if original["number"] != invoice["credits"]:
            wrong.append(
                f"{called([line])}: takes back from {original['number']}, not from {invoice['credits']}"
            )
        taken[original["position"]] = taken.get(original["position"], 0) - line["amount"]
        billed[original["position"]] = original["amount"]
    for position, amount in taken.items():
        if not min(0, billed[position]) <= amount <= max(0, billed[position]):
            of = f"line {position} of {invoice['credits']}, which billed {money(billed[position], invoice)}"
            wrong.append(f"{money(amount, invoice)} is taken back of {of}")
    return wrong


def subject(line: Stated) -> tuple[str, ...]:
    """What it charges for. What is taken back of several lines, or was credited by hand, stands in as many."""
    return tuple(str(line.get(key)) for key in ("kind", "term", "project_id", "used_by", "service"))


def called(same: list[Stated]) -> str:
    stated = " and ".join(str(line["position"]) for line in same)
    return f"line{'s' * (len(same) > 1)} {stated} ({same[0]['description']})"


def of_line(line: Stated, same: list[Stated], seconds: Fraction, invoice: Stated) -> list[str]:
    """Its own jobs, and what all lines of the same come to together."""
    wrong = []
    stated = number(line["seconds"])
    if seconds != stated:
        wrong.append(f"{called([line])}: its jobs held {seconds} seconds, the line says {stated}")
    own = sum((number(each["seconds"]) for each in same), Fraction(0))
    own += number(line["before"]["seconds"]) + number(line["beside"]["seconds"])
    if line["terms"]:
        return wrong + of_shared(line, same, own, invoice)
    owed = rounded(number(line["unit_price"]) * own / HOUR, invoice["decimals"])
    return wrong + of_amount(line, same, owed, invoice)


def of_amount(line: Stated, same: list[Stated], owed: int, invoice: Stated) -> list[str]:
    """What is owed, less what documents before this one hold of it, and those that were issued beside it."""
    before, beside = line["before"]["amount"], line["beside"]["amount"]
    wrong = []
    if line["terms"] and line["terms"]["billed"] != before:
        billed = money(line["terms"]["billed"], invoice)
        wrong.append(f"{called(same)}: {money(before, invoice)} was billed before, its terms say {billed}")
    amount = sum(each["amount"] for each in same)
    if owed - before - beside != amount:
        said = "comes to {}, the line says {}" if len(same) == 1 else "come to {}, they say {}"
        wrong.append(
            f"{called(same)}: {said.format(money(owed - before - beside, invoice), money(amount, invoice))}"
        )
    return wrong


def of_shared(line: Stated, same: list[Stated], own: Fraction, invoice: Stated) -> list[str]:
    """A price over all projects: the whole anew, and this project's part of it to the nearest smallest units."""
    name, terms = called(same), line["terms"]
    whole, included = number(terms["of"]), number(terms["included"])
    wrong = []
    if number(terms["own"]) != own:
        wrong.append(f"{name}: {own} seconds are its own, its terms say {terms['own']}")
    amount = rounded(price(terms["price"], whole - included), invoice["decimals"])
    if amount != terms["amount"]:
        stated, found = money(terms["amount"], invoice), money(amount, invoice)
        wrong.append(f"{name}: all projects together come to {found}, its terms say {stated}")
    exact = amount * number(terms["own"]) / whole if whole else Fraction(0)
    if abs(exact - terms["share"]) >= 1:
        stated, found = money(terms["share"], invoice), money(exact, invoice)
        wrong.append(f"{name}: its part is {found}, its terms say {stated}")
    return wrong + of_amount(line, same, terms["share"], invoice)


def of_term(line: Stated, same: list[Stated], invoice: Stated) -> list[str]:
    """A fee, a commitment or a discount: what its terms come to, less what was billed of it before."""
    name, terms, decimals = called(same), line["terms"], invoice["decimals"]
    if not terms:  # it does not hold any more: what was billed of it is taken back
        owed = 0
    elif "fee" in terms:
        owed = rounded(number(terms["fee"]) * part(terms), decimals)
    elif "commitment" in terms or "commitments" in terms:
        owed = committed(terms, decimals)
    else:
        owed = discounted(terms, decimals)
    wrong = of_amount(line, same, owed, invoice)
    if terms and not 0 <= terms["seconds"] <= terms["of"]:
        wrong.append(f"{name}: holds for {terms['seconds']} of {terms['of']} seconds")
    for key in ("use", "base"):
        whole = charged(line, invoice, key)
        stated = terms.get(key, whole)
        sentence = f"{name}: is of {money(whole, invoice)}, its terms say {money(stated, invoice)}"
        wrong += [sentence] * (stated != whole)
    return wrong


def part(terms: Stated) -> Fraction:
    """Of the period, by seconds."""
    return Fraction(terms["seconds"], terms["of"])


def committed(terms: Stated, decimals: int) -> int:
    """What is missing to the commitment, or the surcharge of what lies above it.

    Several follow each other in a period: the use is compared with what they come to together, and what lies above
    counts by each one's factor for its part of the seconds.
    """
    each = terms.get("commitments", [terms])
    least = sum(number(stated["commitment"]) * Fraction(stated["seconds"], terms["of"]) for stated in each)
    above = terms["use"] - least * 10**decimals
    if above <= 0:
        return rounded(-above, 0)
    more = sum((number(stated["factor"]) - 1) * stated["seconds"] for stated in each)
    return rounded(above * more / terms["seconds"], 0) if more else 0


def discounted(terms: Stated, decimals: int) -> int:
    """What is taken off, below zero; never more than there is."""
    base: int = terms["base"]
    if base <= 0:
        return 0
    if terms["percent"] is not None:
        off = rounded(base * number(terms["percent"]) / 100 * part(terms), 0)
    else:
        off = rounded(number(terms["off"]) * part(terms), decimals)
    return -min(off, base)


def charged(line: Stated, invoice: Stated, key: str) -> int:
    """What the line's version of the plan charges for its period: its use, or all that stands before a discount."""
    others = [{**each, "service": each["service"][0]} for each in invoice["lines"]]
    total = 0
    for each in [*others, *invoice["charged"]]:
        if (each["service"], each["version"]) != (line["service"][0], line["version"]):
            continue
        if each.get("used_by") != line.get("used_by"):
            continue
        earlier = each["kind"] == "discount" and each["term"] < line["term"]
        wanted = key == "base" and (each["kind"] in ("fee", "commitment") or earlier)
        if each["kind"] == "usage" or wanted:
            total += each["amount"]
    return total


def of_allowances(invoice: Stated) -> list[str]:
    """What each allowance includes: all that is used of it, as far as it reaches."""
    found: dict[str, list[Stated]] = {}
    for line in invoice["lines"]:
        stated = line["terms"].get("allowance") if line["kind"] == "usage" else None
        if stated:
            key = [line["service"], line.get("used_by"), stated]
            found.setdefault(json.dumps(key, sort_keys=True), []).append(line)
    wrong = []
    for lines in found.values():
        stated = lines[0]["terms"]["allowance"]
        given = stated.get("given", [stated])  # the plan's, and what the tenant has of its own in its place
        hours = sum(number(each["hours"]) * Fraction(each["seconds"], stated["of"]) for each in given)
        available = hours * HOUR + number(stated["carried"])
        prices = {
            line["term"]: line["terms"] for line in lines
        }  # one over several projects has several lines
        included = sum(number(terms["included"]) for terms in prices.values())
        used = sum(number(terms["of"]) for terms in prices.values())
        most = min(available, number(stated["used"]))
        if included > most or (used == number(stated["used"]) and included != most):
            wrong.append(f"the allowance {stated['name']} includes {most} seconds, its lines say {included}")
    return wrong


def price(model: Stated, seconds: Fraction) -> Fraction:
    """What that many resource-seconds cost, exact, in whole units of the currency."""
    hours = seconds / HOUR
    kind = model["model"]
    if kind == "per_unit":
        return number(model["unit_price"]) * hours
    if kind == "package":
        packages = -((-hours) // number(model["size"]))
        return packages * number(model["price"])
    if kind == "volume":
        for tier in model["tiers"]:
            if tier["up_to"] is None or hours <= number(tier["up_to"]):
                return number(tier["unit_price"]) * hours
    if kind == "graduated":
        total, start = Fraction(0), Fraction(0)
        for tier in model["tiers"]:
            end = hours if tier["up_to"] is None else min(hours, number(tier["up_to"]))
            if end > start:
                total += (end - start) * number(tier["unit_price"])
                start = end
        return total
    raise SystemExit(
        f"This evidence has a price of the kind {kind!r}: verify it with the program of a newer bundle."
    )


def of_foot(invoice: Stated) -> list[str]:
    """What is wrong with subtotal, taxes, total and what wallets paid."""
    wrong = []

    def of(amount: int) -> str:
        return money(amount, invoice)

    subtotal = sum(line["amount"] for line in invoice["lines"])
    if subtotal != invoice["subtotal"]:
        wrong.append(f"the lines add up to {of(subtotal)}, the subtotal says {of(invoice['subtotal'])}")
    stated = [(row["category"], row["rate"]) for row in invoice["taxes"]]
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
        if not invoice["credit_note"]:  # its tax is what is left of the invoice's
            due = rounded(net * number(row["rate"]) / 100, 0)
            if due != row["tax"]:
                wrong.append(f"{row['rate']} % of {of(net)} is {of(due)}, the invoice says {of(row['tax'])}")
    if tax != invoice["tax"]:
        wrong.append(f"the taxes add up to {of(tax)}, the invoice says {of(invoice['tax'])}")
    if subtotal + tax != invoice["total"]:
        wrong.append(f"{of(subtotal)} and {of(tax)} do not add up to {of(invoice['total'])}")
    return wrong + of_wallet(invoice)


def of_wallet(invoice: Stated) -> list[str]:
    """What a wallet paid of the total, grant by grant, and then a credit balance; taxes are on the full net.

    What a credit note gives back to a wallet is below zero, as its total is.
    """
    wrong = []
    drawn = sum(entry["amount"] for entry in invoice["wallet"])
    if not invoice["credit_note"] and drawn != invoice["prepaid"]:
        said = money(invoice["prepaid"], invoice)
        wrong.append(f"the wallet's entries add up to {money(drawn, invoice)}, the invoice says {said}")
    before = invoice["prepaid"] + invoice["from_credit"]
    total, due = invoice["total"], invoice["due"]
    asks = -due if invoice["credit_note"] else due
    if total - before != due or asks < 0:
        wrong.append(
            f"{money(total, invoice)} less {money(before, invoice)} is not the {money(due, invoice)} that is due"
        )
    return wrong
