"""Verify an invoice by its evidence: python3 BUNDLE.zip [OTHER.zip] [--key KEY] [--digest SHA256]

Needs Python 3.9 or newer and nothing else: no database, no network, none of ClusterTab. It is written apart from the
code that bills, and stands in every bundle; with OTHER.zip, the program of a bundle that you trust verifies another.
KEY is the operator's public key, or a file with the list of them, as the portal publishes it: with it, what is signed
by anybody else differs. SHA256 is the digest on the invoice. Exit codes: 0 all agrees, 1 something differs, 2 this is
no bundle.

What it does: checks that every file is what was signed (Ed25519); computes what each job held from its start, end,
suspension, count and share, holds each stretch against its line's period, and refuses a second that counts twice; adds
that up by line, exactly, as fractions; prices each line anew and rounds it once, halves away from zero; adds up lines,
taxes each rate on its sum, and compares all of it with what the invoice says.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED

from . import foot, lines, seals, stretches
from .numbers import money, of_json

# What is encrypted or nested beyond measure is a RuntimeError.
NO_BUNDLE = (OSError, RuntimeError, EOFError, KeyError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error)
NOT_WHOLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    try:
        keys = None if options.key is None else seals.pinned(options.key)
    except (OSError, LookupError, TypeError, ValueError) as error:
        print(f"--key holds no public key: {error}", file=sys.stderr)
        return 2
    try:
        files = unpacked(options.bundle)
        invoice, usage = of_json(files["invoice.json"]), rows(files["usage.csv"])
    except NO_BUNDLE as error:
        print(f"This is no evidence of an invoice: {error}", file=sys.stderr)
        return 2
    try:
        key, differences = seals.check(files, keys)
        if options.digest not in (None, seals.digest(files["manifest.json"])):
            differences.append("manifest.json does not have the digest that you gave")
        differences += recompute(invoice, usage)
        report = summary(invoice, usage, key=key, trusted=keys is not None)
    except NOT_WHOLE as error:
        print(f"This evidence is not whole, or was changed: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for sentence in differences:
        print(f"DIFFERS  {sentence}")
    print(f"{report}: {'does not agree' if differences else 'agrees'}.")
    return 1 if differences else 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="verify_invoice", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle")
    parser.add_argument("--key")
    parser.add_argument("--digest", type=str.lower)
    return parser.parse_args(arguments)


def unpacked(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as bundle:
        if any(entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for entry in bundle.infolist()):
            raise ValueError("it is compressed in a way that bundles are not")
        files = {name: bundle.read(name) for name in bundle.namelist()}
        if len(files) != len(bundle.namelist()):
            raise ValueError("it has two files of one name")
    return files


class Plain(csv.excel):
    """A quote within a cell is no two ways to read it."""

    strict = True


def rows(content: bytes) -> list[dict[str, str]]:
    reader = csv.reader(io.StringIO(content.decode(), newline=""), Plain)
    names = next(reader, [])
    if len(set(names)) != len(names):
        raise ValueError("usage.csv has two columns of one name")
    usage = []
    for cells in reader:
        if len(cells) != len(names):
            raise ValueError(f"line {reader.line_num} of usage.csv has {len(cells)} cells, not {len(names)}")
        usage.append(dict(zip(names, cells)))  # noqa: B905 - Python 3.9 has no `strict`
    return usage


def recompute(invoice: Mapping[str, Any], usage: Sequence[Mapping[str, str]]) -> list[str]:
    """Sentences for all that does not come out as the invoice says."""
    seconds_by_line, wrong = stretches.check(invoice, usage)
    return [*dict.fromkeys(wrong), *lines.recompute(invoice, seconds_by_line), *foot.of_foot(invoice)]


def summary(
    invoice: Mapping[str, Any], usage: Sequence[Mapping[str, str]], *, key: str, trusted: bool
) -> str:
    jobs = [row for row in usage if row["record"]]
    parts = [
        f"{len(invoice['lines'])} lines, {len(jobs)} stretches of jobs, total {money(invoice['total'], invoice)}"
    ]
    by_hand = [line for line in invoice["lines"] if line["kind"] not in ("usage", *lines.TERMS)]
    if by_hand:
        parts.append(f"{len(by_hand)} of the lines were written or credited by hand, and count as they stand")
    others = [
        line for line in invoice["lines"] if line["kind"] == "usage" and line.get("used_by") is not None
    ]
    if others:
        parts.append(
            f"{len(others)} of the lines were used by other tenants, whose jobs are told to them alone"
        )
    twins = same_jobs(jobs)
    if twins:
        parts.append(f"{', '.join(twins[:5])} under several records for the same time, so ask why")
    parts.append(f"signed with the key {key}")
    if not trusted:
        parts[-1] += ", which the bundle brings along: give --key to say which you trust"
    return f"{invoice['number']}: {'; '.join(parts)}"


def same_jobs(jobs: Sequence[Mapping[str, str]]) -> list[str]:
    """Jobs of one id, start and stretch with several records: parts of one job, or one that was written down twice."""
    shape = ("line", "cluster", "account", "job", "started", "ended", "service_from", "service_to")
    records: dict[tuple[str, ...], set[str]] = {}
    for row in jobs:
        if row["job"] and not row["units"].startswith("-"):
            records.setdefault(tuple(row[name] for name in shape), set()).add(row["record"])
    return sorted({f"job {key[3]}" for key, record_ids in records.items() if len(record_ids) > 1})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
