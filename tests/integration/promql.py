"""Asking a Prometheus as Grafana does, with the dashboards' variables filled in."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

ALL = ".+"  # what the variables stand for while nothing is chosen


def query_data(url: str, path: str, **form: object) -> Any:
    """The data of an answer without warnings."""
    with urlopen(f"{url}/api/v1/{path}", data=urlencode(form).encode(), timeout=60) as answer:
        payload = json.load(answer)
    assert payload["status"] == "success"
    assert not payload.get("warnings"), payload["warnings"]
    return payload["data"]


def instant(url: str, expression: str, at: int | None = None, **variables: str) -> list[dict[str, Any]]:
    moment: Mapping[str, object] = {} if at is None else {"time": at}
    results: list[dict[str, Any]] = query_data(url, "query", query=filled(expression, **variables), **moment)[
        "result"
    ]
    return results


def values(
    url: str, expression: str, at: int | None = None, *, by: str, **variables: str
) -> dict[str, float]:
    """The value of each series by one of its labels."""
    results = instant(url, expression, at, **variables)
    label_values = {series["metric"].get(by, ""): float(series["value"][1]) for series in results}
    assert len(label_values) == len(results), f"{by} does not tell the series apart"
    return label_values


def filled(expression: str, **variables: str) -> str:
    text = re.sub(r"\$([a-z]\w*)", lambda name: variables.get(name[1], ALL), expression)
    return re.sub(r"^query_result\((.*)\)$|^label_values\((.*), \w+\)$", lambda m: m[1] or m[2], text)


def eventually(url: str, expression: str, *, patience: int = 60) -> list[dict[str, Any]]:
    """Once there is an answer."""
    end = time.monotonic() + patience
    while not (results := instant(url, expression)):
        assert time.monotonic() < end, f"{expression} has no answer."
        time.sleep(0.2)
    return results
