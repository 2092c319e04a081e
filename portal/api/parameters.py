"""Parameters of the query string: declared once, from which they are read, refused and documented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.http import QueryDict

from portal.api.problems import bad_parameter

LARGEST_PAGE = 200
PAGE = 50
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One name in the query string. `parse` raises ValueError with a sentence; `many` may stand several times."""

    name: str
    parse: Callable[[str], Any]
    schema: Mapping[str, Any]
    description: str
    many: bool = False
    required: bool = False
    example: str = ""
    default: Any = None


def read(query: QueryDict, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The values by name, defaults included. Raises ProblemError 400 that names the parameter which is wrong."""
    by_name = {parameter.name: parameter for parameter in parameters}
    for name in query:
        if name not in by_name:
            names = ", ".join(sorted(by_name)) or "none"
            raise bad_parameter(name[:80], f"There is no parameter {name[:80]!r}; known are: {names}.")
    values: dict[str, Any] = {}
    for name, parameter in by_name.items():
        texts = query.getlist(name)
        if len(texts) > 1 and not parameter.many:
            raise bad_parameter(name, f"{name} can stand only once.")
        if parameter.required and not texts:
            raise bad_parameter(name, f"{name} is missing: {parameter.description}")
        if len(texts) > 50:
            raise bad_parameter(name, f"{name} stands {len(texts)} times; at most 50 are possible.")
        try:
            read_values = [parameter.parse(text) for text in texts]
        except ValueError as error:
            raise bad_parameter(name, f"{name}: {error}") from None
        values[name] = read_values if parameter.many else read_values[0] if read_values else parameter.default
    return values


def text(
    name: str, description: str, *, longest: int = 200, example: str = "", many: bool = True
) -> Parameter:
    def parse(value: str) -> str:
        if not 0 < len(value) <= longest or not value.isprintable():
            raise ValueError(f"write 1 to {longest} printable characters.")
        return value

    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return Parameter(name, parse, schema, description, many=many, example=example)


def choice(
    name: str, values: Sequence[str], description: str, *, many: bool = True, default: str | None = None
) -> Parameter:
    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(f"choose among {', '.join(values)}.")
        return value

    schema = {"type": "string", "enum": list(values)}
    return Parameter(name, parse, schema, description, many=many, default=default)


def choices(name: str, values: Sequence[str], description: str, *, most: int) -> Parameter:
    """Several of them, separated by commas, in the order that is wanted."""

    def parse(value: str) -> list[str]:
        names = value.split(",")
        if wrong := [one for one in names if one not in values]:
            raise ValueError(f"there is no {wrong[0][:40]!r}; choose among {', '.join(values)}.")
        if len({*names}) != len(names) or len(names) > most:
            raise ValueError(f"name at most {most} of them, each once.")
        return names

    one = "|".join(values)
    schema = {"type": "string", "pattern": f"^({one})(,({one})){{0,{most - 1}}}$"}
    return Parameter(name, parse, schema, description, default=[], example=",".join(values[:2]))


def moment(name: str, description: str, *, required: bool = False, example: str = "") -> Parameter:
    """An instant of RFC 3339 with its zone."""
    schema = {"type": "string", "format": "date-time"}
    return Parameter(name, parse_moment, schema, description, required=required, example=example)


def parse_moment(value: str) -> datetime:
    """Of RFC 3339, in UTC. ValueError for a time without a zone, and before 1970 or from 2200 on."""
    if not _MOMENT.match(value):
        raise ValueError("write a time with its zone, such as 2026-03-01T00:00:00Z.")
    try:
        parsed = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("there is no such time.") from None
    if not 1970 <= parsed.year < 2200:
        raise ValueError("write a time from 1970 to 2199.")
    return parsed


def day(name: str, description: str, *, required: bool = False) -> Parameter:
    schema = {"type": "string", "format": "date"}
    return Parameter(name, parse_day, schema, description, required=required)


def parse_day(value: str) -> date:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        try:
            parsed = date.fromisoformat(value)
        except ValueError:
            raise ValueError("there is no such day.") from None
        if 1970 <= parsed.year < 2200:
            return parsed
    raise ValueError("write a day from 1970 to 2199, such as 2026-03-01.")


def integer(name: str, description: str, *, least: int, most: int, default: int | None = None) -> Parameter:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or not least <= int(value) <= most:
            raise ValueError(f"write a whole number from {least} to {most}.")
        return int(value)

    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Parameter(name, parse, schema, description, default=default)


def flag(name: str, description: str) -> Parameter:
    def parse(value: str) -> bool:
        if value not in {"true", "false"}:
            raise ValueError("write true or false.")
        return value == "true"

    return Parameter(name, parse, {"type": "boolean", "default": False}, description, default=False)


LIMIT = integer("limit", "How many objects at most.", least=1, most=LARGEST_PAGE, default=PAGE)
CURSOR = Parameter(
    "cursor", str, {"type": "string", "maxLength": 2000}, "`next` of the page before; good for 24 hours."
)
COUNT = flag("count", "Whether to count the objects, up to 10,000.")
TENANT = text("tenant", "Slug of a tenant. With an operator's key only.", many=False, example="vision")
LISTS = (LIMIT, CURSOR, COUNT)
DRY_RUN = flag("dry_run", "Answer as if, and keep nothing: no number is used, nobody is mailed.")
