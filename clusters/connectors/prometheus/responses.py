"""What a Prometheus answers: series with exact values, or a sentence on why not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Answer
from portal.excerpt import excerpt

Sample = tuple[Decimal, Decimal]
"""Epoch second with its milliseconds, and the value."""


class TooMuchError(ConnectorError):
    """The server refuses so many samples, or took too long over them. Asking for less helps."""


class Series(msgspec.Struct):
    """One series: an instant query gives `value`, a range `values`."""

    metric: dict[str, str]
    value: Sample | None = None
    values: list[Sample] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Response(msgspec.Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] = []
    infos: list[str] = []


# Bytes that are no UTF-8 within a text, and brackets in brackets, are told by errors of their own.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError, ValueError)
LAST_SECOND = 10**11
LARGEST = 400  # digits; a Prometheus has floats of 64 bits
_RESPONSE = msgspec.json.Decoder(_Response)
_DATA = msgspec.json.Decoder(_Data)
_SERIES = msgspec.json.Decoder(list[Series])
_SCALAR = msgspec.json.Decoder(Sample)


def series(answer: Answer, address: str) -> tuple[list[Series], list[str]]:
    """The series of a whole answer, and its remarks that do no harm. Raises `ConnectorError`."""
    response = _response(answer, address)
    try:
        data = _DATA.decode(response.data)
        if data.result_type == "scalar":
            return [Series({}, _checked(_SCALAR.decode(data.result)))], response.infos
        if data.result_type in {"vector", "matrix"}:
            return [_bounded(one) for one in _SERIES.decode(data.result)], response.infos
    except _UNREADABLE:
        raise _unread(address) from None
    raise _unread(address)


def _bounded(one: Series) -> Series:
    """Raises ValueError for an instant that is none, and for a number that would take all memory to write out."""
    if one.value is not None:
        _checked(one.value)
    for sample in one.values:
        _checked(sample)
    return one


def _checked(sample: Sample) -> Sample:
    at, value = sample
    if not at.is_finite() or not 0 <= at < LAST_SECOND or value.adjusted() > LARGEST:
        raise ValueError("a sample that is none")
    return sample


def _response(answer: Answer, address: str) -> _Response:
    try:
        response = _RESPONSE.decode(answer.body)
    except _UNREADABLE:
        raise _without_words(answer, address) from None
    if answer.status != 200 or response.status != "success":
        raise refused(answer.status, response.error_type, response.error, address)
    if response.warnings:
        raise ConnectorError(
            f"{address} answered with a warning, so its answer may be incomplete and nothing of it is kept: "
            f"{_quoted('; '.join(response.warnings))}",
            retry=True,
        )
    return response


def refused(status: int, kind: str, message: str, address: str) -> ConnectorError:
    """One sentence for an error that was answered as documented."""
    words = _quoted(message or kind or f"HTTP {status}")
    if status in {401, 403}:
        return _not_let_in(status, address)
    if status == 429:
        return ConnectorError(f"{address} limits how often it is asked (HTTP 429): {words}", retry=True)
    if (limit := _limit(status, kind, message)) is not None:
        return TooMuchError(f"{address} {limit}", retry=True)
    if status == 422 or kind == "execution":
        return ConnectorError(f"{address} could not work a query out (HTTP {status}): {words}", retry=False)
    if status == 400 or kind == "bad_data":
        return ConnectorError(
            f"{address} does not understand a query (HTTP {status}); check the matcher and the label names of "
            f"the connection: {words}",
            retry=False,
        )
    return ConnectorError(f"{address} cannot answer now (HTTP {status}): {words}", retry=status >= 500)


def _limit(status: int, kind: str, message: str) -> str | None:
    """What the server does where it was asked for too much; None where that was not it."""
    if "maximum resolution" in message or "11,000 points" in message:
        return "gives at most 11,000 points of a series in one answer: ask for a shorter time."
    if "too many samples" in message:
        return (
            "was asked for more samples than --query.max-samples allows: raise it, or ask for a shorter time."
        )
    if kind == "timeout" or "timed out" in message:
        return f"gave up on a query after its own time limit (--query.timeout): {_quoted(message or kind)}"
    if status in {400, 422} and "exceed" in message:  # Mimir and Thanos have limits of their own
        return f"has a limit on what one query may ask for: {_quoted(message)}"
    return None


def _without_words(answer: Answer, address: str) -> ConnectorError:
    """A sentence for an answer that is none of the query API."""
    if answer.status in {401, 403}:
        return _not_let_in(answer.status, address)
    if 300 <= answer.status < 400:
        return ConnectorError(
            f"{address} sends us elsewhere ({excerpt(answer.location) or 'it does not say where'}), as a login page "
            "does: give the address of the query API itself.",
            retry=False,
        )
    if answer.status in {404, 405}:
        return ConnectorError(
            f"{address} has no /api/v1/query (HTTP {answer.status}): check the path of the base URL; Mimir's "
            "ends in /prometheus.",
            retry=False,
        )
    if answer.status == 429:
        return ConnectorError(f"{address} limits how often it is asked (HTTP 429).", retry=True)
    if answer.status == 200 and "json" in answer.content_type:
        return _unread(address)
    if answer.status == 200:
        return ConnectorError(
            f"{address} answered with {excerpt(answer.content_type) or 'something'} instead of JSON: it is not the "
            "query API of a Prometheus.",
            retry=False,
        )
    return ConnectorError(f"{address} cannot answer now (HTTP {answer.status}).", retry=answer.status >= 500)


def _not_let_in(status: int, address: str) -> ConnectorError:
    why = "does not know us" if status == 401 else "does not let us read"
    return ConnectorError(
        f"{address} {why} (HTTP {status}): check the user and password, the token, the AWS key or the headers "
        "of the connection.",
        retry=False,
    )


def _unread(address: str) -> ConnectorError:
    return ConnectorError(
        f"{address} sent JSON that is cut off, or is not what the query API documents; nothing of it is kept.",
        retry=True,
    )


def _quoted(message: str) -> str:
    """The server's words as the end of our sentence."""
    return f"{excerpt(' '.join(message.split()).rstrip('.'))}."


def whole(value: Any) -> int | None:
    """The integer that a value is; None for a fraction, NaN or infinity."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    number, parts = value.as_integer_ratio()
    return number if parts == 1 else None
