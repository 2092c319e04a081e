"""One request for each endpoint, and its answer. `tests/api/test_examples.py` sends them all and writes the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("examples.json")
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Example:
    """`path` stands behind `/api/v1` and has its query. Ids are as others have them; `…` stands for what varies."""

    method: str
    path: str
    status: int
    body: Any = None
    answer: Any = None  # of JSON; files are not shown
    content_type: str = JSON  # of the body; of a file, `body` is its text

    def as_curl(self, *, base: str, key: str) -> str:
        """As a shell takes it."""
        url = f'"{base}/api/v1{self.path}"'
        lines = [f'curl -H "Authorization: Bearer {key}"']
        if self.method != "GET":
            lines[0] += f" -X {self.method}"
        if self.method == "POST":
            lines.append("-H 'Idempotency-Key: example-1'")
        if self.body is not None:
            lines.append(f"-H 'Content-Type: {self.content_type}'")
            text = self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)
            quoted = text.replace("'", "'\\''")
            lines.append(f"--data-binary '{quoted}'")
        return " \\\n  ".join([*lines, url])


@cache
def examples() -> Mapping[tuple[str, str], Example]:
    """By method and address, such as `("GET", "/invoices/{name}")`."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        (name.split()[0], name.split()[1]): Example(name.split()[0], **one) for name, one in stored.items()
    }
