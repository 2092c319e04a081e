"""Recompute an invoice from its evidence: python3 verify_invoice.py BUNDLE.zip

Needs Python 3.9 or newer and nothing else: no database, no network, none of ClusterTab. It is written apart
from the code that bills, and stands in every bundle. Exit codes: 0 all agrees, 1 something differs, 2 this
is no bundle.

What it does: checks that no file of the bundle was changed (SHA256SUMS); adds up what the jobs of each line
held, exactly, as fractions; prices each line anew and rounds it once, halves away from zero; adds up lines,
taxes each rate on its sum, and compares all of it with what the invoice says.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Told = Mapping[str, Any]  # as it stands in invoice.json

HOUR = 3600
TERMS = ("fee", "commitment", "discount")  # of the plan, in the order in which they are charged


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    try:
        with zipfile.ZipFile(arguments[0]) as bundle:
            files = {name: bundle.read(name) for name in bundle.namelist()}
        invoice = json.loads(files["invoice.json"])
        usage = list(csv.DictReader(io.StringIO(files["usage.csv"].decode())))
        sums = files["SHA256SUMS"].decode()
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        print(f"This is no evidence of an invoice: {error}", file=sys.stderr)
        return 2
    try:
        differences = changed(files, sums) + recompute(invoice, usage)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        print(f"This evidence is not whole, or was changed: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    stated = [line for line in invoice["lines"] if line["kind"] not in ("usage", *TERMS)]
    for sentence in differences:
        print(f"DIFFERS  {sentence}")
    jobs = [row for row in usage if row["record"]]
    told = f"{invoice['number']}: {len(invoice['lines'])} lines, {len(jobs)} stretches of jobs, "
    told += f"total {invoice['total']} {invoice['currency']} (in the smallest unit)"
    if stated:
        told += f"; {len(stated)} of the lines were written or credited by hand, and count as they stand"
    others = [
        line for line in invoice["lines"] if line["kind"] == "usage" and line.get("used_by") is not None
    ]
    if others:
        told += f"; {len(others)} of the lines were used by other tenants, whose jobs are told to them alone"
    print(f"{told}: {'does not agree' if differences else 'agrees'}.")
    return 1 if differences else 0


def changed(files: Mapping[str, bytes], sums: str) -> list[str]:
    """Files that are not what SHA256SUMS says, or that it does not name."""
    rows = (row.split("  ", 1) for row in sums.splitlines() if row)
    told = {name: digest for digest, name in rows}
    wrong = [
        f"{name} is not what SHA256SUMS says"
        for name, digest in sorted(told.items())
        if hashlib.sha256(files.get(name, b"")).hexdigest() != digest
    ]
    return wrong + [
        f"{name} is not in SHA256SUMS" for name in sorted(set(files) - set(told) - {"SHA256SUMS"})
    ]


def recompute(invoice: Told, usage: Iterable[Mapping[str, str]]) -> list[str]:
    """Sentences for all that does not come out as the invoice says."""
    held: dict[str, Fraction] = {}
    for row in usage:
        seconds = Fraction(int(row["units"]) * int(row["share_num"]), int(row["share_den"]))
        held[row["line"]] = held.get(row["line"], Fraction(0)) + seconds
    same: dict[tuple[str, ...], list[Told]] = {}
    for line in invoice["lines"]:
        same.setdefault(subject(line), []).append(line)
    wrong: list[str] = []
    for line in invoice["lines"]:
        if line["kind"] == "usage":
            seconds = held.pop(str(line["position"]), Fraction(0))
            wrong += of_line(line, same[subject(line)], seconds, invoice["decimals"])
        elif line["kind"] in TERMS:
            wrong += of_term(line, same[subject(line)], invoice)
    wrong += of_allowances(invoice)
    wrong += [f"jobs stand behind line {position}, which the invoice does not have" for position in held]
    return [*dict.fromkeys(wrong), *of_foot(invoice)]


def subject(line: Told) -> tuple[str, ...]:
    """What it charges for. What is taken back of several lines, or was credited by hand, stands in as many."""
    return tuple(str(line.get(key)) for key in ("kind", "term", "project_id", "used_by", "service"))


def called(same: list[Told]) -> str:
    told = " and ".join(str(line["position"]) for line in same)
    return f"line{'s' * (len(same) > 1)} {told} ({same[0]['description']})"


def of_line(line: Told, same: list[Told], seconds: Fraction, decimals: int) -> list[str]:
    """Its own jobs, and what all lines of the same come to together."""
    wrong = []
    told = number(line["seconds"])
    if seconds != told:
        wrong.append(f"{called([line])}: its jobs held {seconds} seconds, the line says {told}")
    own = sum((number(each["seconds"]) for each in same), Fraction(0))
    own += number(line["before"]["seconds"]) + number(line["beside"]["seconds"])
    if line["terms"]:
        return wrong + of_shared(line, same, own, decimals)
    owed = rounded(number(line["unit_price"]) * own / HOUR, decimals)
    return wrong + of_amount(line, same, owed)


def of_amount(line: Told, same: list[Told], owed: int) -> list[str]:
    """What is owed, less what documents before this one hold of it, and those that were issued beside it."""
    before, beside = line["before"]["amount"], line["beside"]["amount"]
    wrong = []
    if line["terms"] and line["terms"]["billed"] != before:
        wrong.append(f"{called(same)}: {before} was billed before, its terms say {line['terms']['billed']}")
    amount = sum(each["amount"] for each in same)
    if owed - before - beside != amount:
        said = "comes to {}, the line says {}" if len(same) == 1 else "come to {}, they say {}"
        wrong.append(f"{called(same)}: {said.format(owed - before - beside, amount)}")
    return wrong


def of_shared(line: Told, same: list[Told], own: Fraction, decimals: int) -> list[str]:
    """A price over all projects: the whole anew, and this project's part of it to the nearest smallest units."""
    name, terms = called(same), line["terms"]
    whole, included = number(terms["of"]), number(terms["included"])
    wrong = []
    if number(terms["own"]) != own:
        wrong.append(f"{name}: {own} seconds are its own, its terms say {terms['own']}")
    amount = rounded(price(terms["price"], whole - included), decimals)
    if amount != terms["amount"]:
        wrong.append(f"{name}: all projects together come to {amount}, its terms say {terms['amount']}")
    exact = amount * number(terms["own"]) / whole if whole else Fraction(0)
    if abs(exact - terms["share"]) >= 1:
        wrong.append(f"{name}: its part is {exact}, its terms say {terms['share']}")
    return wrong + of_amount(line, same, terms["share"])


def of_term(line: Told, same: list[Told], invoice: Told) -> list[str]:
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
    wrong = of_amount(line, same, owed)
    if terms and not 0 <= terms["seconds"] <= terms["of"]:
        wrong.append(f"{name}: holds for {terms['seconds']} of {terms['of']} seconds")
    for key in ("use", "base"):
        whole = charged(line, invoice, key)
        told = terms.get(key, whole)
        wrong += [f"{name}: is of {whole}, its terms say {told}"] * (told != whole)
    return wrong


def part(terms: Told) -> Fraction:
    """Of the period, by seconds."""
    return Fraction(terms["seconds"], terms["of"])


def committed(terms: Told, decimals: int) -> int:
    """What is missing to the commitment, or the surcharge of what lies above it.

    Several follow each other in a period: the use is compared with what they come to together, and what lies above
    counts by each one's factor for its part of the seconds.
    """
    each = terms.get("commitments", [terms])
    least = sum(number(told["commitment"]) * Fraction(told["seconds"], terms["of"]) for told in each)
    above = terms["use"] - least * 10**decimals
    if above <= 0:
        return rounded(-above, 0)
    more = sum((number(told["factor"]) - 1) * told["seconds"] for told in each)
    return rounded(above * more / terms["seconds"], 0) if more else 0


def discounted(terms: Told, decimals: int) -> int:
    """What is taken off, below zero; never more than there is."""
    base: int = terms["base"]
    if base <= 0:
        return 0
    if terms["percent"] is not None:
        off = rounded(base * number(terms["percent"]) / 100 * part(terms), 0)
    else:
        off = rounded(number(terms["off"]) * part(terms), decimals)
    return -min(off, base)


def charged(line: Told, invoice: Told, key: str) -> int:
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


def of_allowances(invoice: Told) -> list[str]:
    """What each allowance includes: all that is used of it, as far as it reaches."""
    found: dict[str, list[Told]] = {}
    for line in invoice["lines"]:
        told = line["terms"].get("allowance") if line["kind"] == "usage" else None
        if told:
            key = [line["service"], line.get("used_by"), told]
            found.setdefault(json.dumps(key, sort_keys=True), []).append(line)
    wrong = []
    for lines in found.values():
        told = lines[0]["terms"]["allowance"]
        given = told.get("given", [told])  # the plan's, and what the tenant has of its own in its place
        hours = sum(number(each["hours"]) * Fraction(each["seconds"], told["of"]) for each in given)
        available = hours * HOUR + number(told["carried"])
        prices = {
            line["term"]: line["terms"] for line in lines
        }  # one over several projects has several lines
        included = sum(number(terms["included"]) for terms in prices.values())
        used = sum(number(terms["of"]) for terms in prices.values())
        most = min(available, number(told["used"]))
        if included > most or (used == number(told["used"]) and included != most):
            wrong.append(f"the allowance {told['name']} includes {most} seconds, its lines say {included}")
    return wrong


def price(model: Told, seconds: Fraction) -> Fraction:
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
        f"This evidence has a price of the kind {kind!r}: verify it with a newer verify_invoice.py."
    )


def of_foot(invoice: Told) -> list[str]:
    """What is wrong with subtotal, taxes, total and what wallets paid."""
    wrong = []
    subtotal = sum(line["amount"] for line in invoice["lines"])
    if subtotal != invoice["subtotal"]:
        wrong.append(f"the lines add up to {subtotal}, the subtotal says {invoice['subtotal']}")
    told = [(row["category"], row["rate"]) for row in invoice["taxes"]]
    for category, rate in sorted({tuple(line["tax"]) for line in invoice["lines"]} - set(told)):
        wrong.append(f"lines are taxed at {rate} % ({category}), of which the invoice has no sum")
    nets = sum(row["net"] for row in invoice["taxes"])
    if nets != invoice["subtotal"]:
        wrong.append(f"taxes are of {nets} together, the subtotal says {invoice['subtotal']}")
    tax = 0
    for row in invoice["taxes"]:
        same = [line for line in invoice["lines"] if line["tax"] == [row["category"], row["rate"]]]
        net = sum(line["amount"] for line in same)
        if net != row["net"]:
            wrong.append(f"{row['rate']} % is of {net}, the invoice says {row['net']}")
        tax += row["tax"]
        if not invoice["credit_note"]:  # its tax is what is left of the invoice's
            due = rounded(net * number(row["rate"]) / 100, 0)
            if due != row["tax"]:
                wrong.append(f"{row['rate']} % of {net} is {due}, the invoice says {row['tax']}")
    if tax != invoice["tax"]:
        wrong.append(f"the taxes add up to {tax}, the invoice says {invoice['tax']}")
    if subtotal + tax != invoice["total"]:
        wrong.append(f"{subtotal} and {tax} do not add up to {invoice['total']}")
    return wrong + of_wallet(invoice)


def of_wallet(invoice: Told) -> list[str]:
    """What a wallet paid of the total, grant by grant, and then a credit balance; taxes are on the full net."""
    wrong = []
    drawn = sum(entry["amount"] for entry in invoice["wallet"])
    if drawn != invoice["prepaid"]:
        wrong.append(f"the wallet's entries add up to {drawn}, the invoice says {invoice['prepaid']}")
    before = drawn + invoice.get("from_credit", 0)
    if invoice["total"] - before != invoice["due"] or invoice["due"] < 0:
        wrong.append(f"{invoice['total']} less {before} is not the {invoice['due']} that is due")
    return wrong


def number(told: Any) -> Fraction:
    """As bundles write it: digits, with a point or as a fraction. An exponent would make it of any size."""
    if "e" in str(told).lower():
        raise ValueError(f"{told} is not written as numbers are here")
    return Fraction(told)


def rounded(amount: Fraction, decimals: int) -> int:
    """The nearest smallest units, halves away from zero."""
    if not 0 <= decimals <= 4:  # ISO 4217 has none beyond
        raise ValueError(f"a currency of {decimals} decimals")
    units = abs(amount) * int(10**decimals)
    whole = int(units) + (2 * (units - int(units)) >= 1)
    return -whole if amount < 0 else whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
