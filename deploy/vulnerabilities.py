"""`./run audit`: whether a locked version is on the public list of vulnerabilities of OSV.

Names and versions of all locks are sent there, nothing else. Exit code 0: none is listed; 1: some are, one a line;
2: the list cannot be read, in one sentence.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OSV = "https://api.osv.dev"
SECONDS = 30
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,.-]+\])?==([^\s;]+)", re.MULTILINE)


class UnreadableError(Exception):
    """The list cannot be read; one sentence."""


@dataclass(frozen=True, order=True)
class Package:
    """One locked version, and the locks that have it."""

    name: str
    version: str
    locks: tuple[str, ...] = field(compare=False)


def main(root: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run audit", description=__doc__)
    parser.add_argument("--osv", default=OSV, metavar="URL", help="another place with OSV's API")
    address = parser.parse_args(arguments).osv.rstrip("/")
    packages = locked(root)
    try:
        listed = vulnerabilities(packages, address)
        lines = [
            line(package, record(number, address))
            for package, numbers in listed.items()
            for number in numbers
        ]
    except UnreadableError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("".join(f"{text}\n" for text in lines))
    sys.stdout.write(f"{len(packages)} locked versions, {len(listed)} of them with a known vulnerability.\n")
    return 1 if listed else 0


def locked(root: Path) -> list[Package]:
    """Every version that some lock may install."""
    locks: dict[tuple[str, str], list[str]] = {}
    for path in sorted(root.glob("requirements*.txt")):
        for name, version in PIN.findall(path.read_text()):
            locks.setdefault((name, version), []).append(path.name)
    return sorted(Package(name, version, tuple(names)) for (name, version), names in locks.items())


def vulnerabilities(packages: list[Package], address: str) -> dict[Package, list[str]]:
    """Packages that are listed, each with the numbers of its records. Raises UnreadableError."""
    waiting: list[tuple[Package, str]] = [(package, "") for package in packages]
    listed: dict[Package, list[str]] = {}
    while waiting:
        results = _results(waiting, address)
        pages: list[tuple[Package, str]] = []
        for (package, _), result in zip(waiting, results, strict=True):
            if numbers := [str(entry["id"]) for entry in result.get("vulns", [])]:
                listed.setdefault(package, []).extend(numbers)
            if page := result.get("next_page_token"):
                pages.append((package, str(page)))
        waiting = pages
    return listed


def _results(questions: list[tuple[Package, str]], address: str) -> list[dict[str, Any]]:
    """As many results as questions, or UnreadableError: a shorter answer would pass for a clean one."""
    queries = [
        {"package": {"name": package.name, "ecosystem": "PyPI"}, "version": package.version}
        | ({"page_token": page} if page else {})
        for package, page in questions
    ]
    results = _answer(f"{address}/v1/querybatch", {"queries": queries}).get("results")
    if not isinstance(results, list) or len(results) != len(queries):
        raise UnreadableError(f"The list of vulnerabilities at {address} does not answer as OSV does.")
    return results


def record(number: str, address: str) -> dict[str, Any]:
    return _answer(f"{address}/v1/vulns/{number}", None)


def line(package: Package, details: dict[str, Any]) -> str:
    """`django 5.2.1 (requirements.txt): CVE-2026-1, what it is; fixed in 5.2.2`"""
    number = next((name for name in details.get("aliases", []) if name.startswith("CVE-")), details.get("id"))
    fixed = sorted(
        {
            str(event["fixed"])
            for affected in details.get("affected", [])
            for entry in affected.get("ranges", [])
            if entry.get("type") == "ECOSYSTEM"
            for event in entry.get("events", [])
            if "fixed" in event
        }
    )
    summary = details.get("summary") or "no summary"
    remedy = f"fixed in {', '.join(fixed)}" if fixed else "no version mends it"
    return f"{package.name} {package.version} ({', '.join(package.locks)}): {number}, {summary}; {remedy}"


def _answer(url: str, question: dict[str, Any] | None) -> dict[str, Any]:
    data = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - of our own
    host = url.split("/v1/", maxsplit=1)[0]
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - the same
            answer = json.load(response)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreadableError(f"The list of vulnerabilities at {host} cannot be read: {reason}.") from error
    if not isinstance(answer, dict):
        raise UnreadableError(f"The list of vulnerabilities at {host} does not answer as OSV does.")
    return answer


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent, sys.argv[1:]))
