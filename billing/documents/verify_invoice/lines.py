"""What each line comes to: computed anew from what stands behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction

from .numbers import Stated, money, number, rounded, second

HOUR = 3600
TERMS = ("fee", "commitment", "discount")  # of the plan, in the order in which they are charged


def recompute(invoice: Stated, seconds_by_line: Mapping[str, Fraction]) -> list[str]:
    """Sentences for all that does not come out as the document says; `held` is what jobs held, by line."""
    same: dict[tuple[str, ...], list[Stated]] = {}
    for line in invoice["lines"]:
        same.setdefault(subject(line), []).append(line)
    wrong = of_positions(invoice)
    for line in invoice["lines"]:
        if line["kind"] == "usage":
            seconds = seconds_by_line.get(str(line["position"]), Fraction(0))
            wrong += of_line(line, same[subject(line)], seconds, invoice)
        elif line["kind"] in TERMS:
            wrong += of_term(line, same[subject(line)], invoice)
    wrong += of_allowances(invoice) + of_shares(invoice)
    if invoice["credit_note"]:
        wrong += of_originals(invoice)
    return list(dict.fromkeys(wrong))


def of_positions(invoice: Stated) -> list[str]:
    """What jobs held counts for the line of their position: two of one position would share it."""
    last = second(invoice["period"][1])
    count: dict[str, int] = {}
    wrong = []
    for line in invoice["lines"]:
        position = str(line["position"])
        count[position] = count.get(position, 0) + 1
        if line["kind"] == "usage" and second(line["service"][1]) > last:
            wrong.append(
                f"{called([line])}: its period ends behind the invoice's, {' to '.join(invoice['period'])}"
            )
    return wrong + [
        f"line {position} stands there {times} times" for position, times in count.items() if times > 1
    ]


def of_shares(invoice: Stated) -> list[str]:
    """Parts of one price add up, wherever the invoice has all projects that used it."""
    prices: dict[tuple[str, ...], dict[str, Stated]] = {}
    for line in invoice["lines"]:
        if line["kind"] == "usage" and line["terms"]:
            key = (*(str(line.get(name)) for name in ("term", "used_by", "service")), line["terms"]["of"])
            prices.setdefault(key, {})[str(line["project_id"])] = line["terms"]
    wrong = []
    for parts in prices.values():
        terms = next(iter(parts.values()))
        own = sum((number(each["own"]) for each in parts.values()), Fraction(0))
        shares = sum(each["share"] for each in parts.values())
        if own > number(terms["of"]):
            wrong.append(f"projects used {own} seconds, all of them together {terms['of']}")
        elif own == number(terms["of"]) and shares != terms["amount"]:
            stated, total = money(terms["amount"], invoice), money(shares, invoice)
            wrong.append(f"the parts of all projects add up to {total}, their terms say {stated} together")
    return wrong


def of_originals(invoice: Stated) -> list[str]:
    """A credit note takes back from lines of its invoice, and from none more than it billed."""
    credit_amounts: dict[int, int] = {}
    billed: dict[int, int] = {}
    wrong = []
    for line in invoice["lines"]:
        original = line["original"]
        if original["number"] != invoice["credits"]:
            wrong.append(
                f"{called([line])}: takes back from {original['number']}, not from {invoice['credits']}"
            )
        credit_amounts[original["position"]] = credit_amounts.get(original["position"], 0) - line["amount"]
        billed[original["position"]] = original["amount"]
    for position, amount in credit_amounts.items():
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
    before, sibling_amount = line["before"]["amount"], line["beside"]["amount"]
    wrong = []
    if line["terms"] and line["terms"]["billed"] != before:
        billed = money(line["terms"]["billed"], invoice)
        wrong.append(f"{called(same)}: {money(before, invoice)} was billed before, its terms say {billed}")
    amount = sum(each["amount"] for each in same)
    if owed - before - sibling_amount != amount:
        template = "comes to {}, the line says {}" if len(same) == 1 else "come to {}, they say {}"
        wrong.append(
            f"{called(same)}: {template.format(money(owed - before - sibling_amount, invoice), money(amount, invoice))}"
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
        stated, actual = money(terms["amount"], invoice), money(amount, invoice)
        wrong.append(f"{name}: all projects together come to {actual}, its terms say {stated}")
    exact = amount * number(terms["own"]) / whole if whole else Fraction(0)
    if abs(exact - terms["share"]) >= 1:
        stated, actual = money(terms["share"], invoice), money(exact, invoice)
        wrong.append(f"{name}: its part is {actual}, its terms say {stated}")
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
        is_counted = key == "base" and (each["kind"] in ("fee", "commitment") or earlier)
        if each["kind"] == "usage" or is_counted:
            total += each["amount"]
    return total


def of_allowances(invoice: Stated) -> list[str]:
    """What each allowance includes: all that is used of it, as far as it reaches."""
    by_allowance: dict[str, list[Stated]] = {}
    for line in invoice["lines"]:
        stated = line["terms"].get("allowance") if line["kind"] == "usage" else None
        if stated:
            key = [line["service"], line.get("used_by"), stated]
            by_allowance.setdefault(json.dumps(key, sort_keys=True), []).append(line)
    wrong = []
    for lines in by_allowance.values():
        stated = lines[0]["terms"]["allowance"]
        allowance_parts = stated.get(
            "given", [stated]
        )  # the plan's, and what the tenant has of its own in its place
        hours = sum(
            number(each["hours"]) * Fraction(each["seconds"], stated["of"]) for each in allowance_parts
        )
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
