"""What a Prometheus answers: series with exact values, or a sentence on why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from statistics import median_low
from typing import Any

import msgspec

from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Answer
from portal.excerpt import excerpt

Labels = Mapping[str, str]
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
            "prometheus-warning", retry=True, address=address, warnings=_quoted("; ".join(response.warnings))
        )
    return response


def refused(status: int, kind: str, message: str, address: str) -> ConnectorError:
    """The error of an answer that is one, as documented."""
    words = _quoted(message or kind or f"HTTP {status}")
    if status in {401, 403}:
        return _not_let_in(status, address)
    if status == 429:
        return ConnectorError("prometheus-rate-limited", retry=True, address=address, words=words)
    if (code := _limit(status, kind, message)) is not None:
        return TooMuchError(code, retry=True, address=address, words=words)
    if status == 422 or kind == "execution":
        return ConnectorError(
            "prometheus-query-failed", retry=False, address=address, status=status, words=words
        )
    if status == 400 or kind == "bad_data":
        return ConnectorError(
            "prometheus-query-refused", retry=False, address=address, status=status, words=words
        )
    return ConnectorError(
        "prometheus-unavailable", retry=status >= 500, address=address, status=status, words=words
    )


def _limit(status: int, kind: str, message: str) -> str | None:
    """The code of the server's limit where it was asked for too much; None where that was not it."""
    if "maximum resolution" in message or "11,000 points" in message:
        return "prometheus-too-many-points"
    if "too many samples" in message:
        return "prometheus-too-many-samples"
    if kind == "timeout" or "timed out" in message:
        return "prometheus-timed-out"
    if status in {400, 422} and "exceed" in message:  # Mimir and Thanos have limits of their own
        return "prometheus-limit"
    return None


def _without_words(answer: Answer, address: str) -> ConnectorError:
    """The error of an answer that is none of the query API."""
    if answer.status in {401, 403}:
        return _not_let_in(answer.status, address)
    if 300 <= answer.status < 400:
        return ConnectorError(
            "prometheus-redirect",
            retry=False,
            address=address,
            location=excerpt(answer.location) or "it does not say where",
        )
    if answer.status in {404, 405}:
        return ConnectorError("prometheus-no-query-api", retry=False, address=address, status=answer.status)
    if answer.status == 429:
        return ConnectorError("rate-limited", retry=True, address=address)
    if answer.status == 200 and "json" in answer.content_type:
        return _unread(address)
    if answer.status == 200:
        return ConnectorError(
            "prometheus-not-json",
            retry=False,
            address=address,
            content_type=excerpt(answer.content_type) or "something",
        )
    return ConnectorError("unavailable", retry=answer.status >= 500, address=address, status=answer.status)


def _not_let_in(status: int, address: str) -> ConnectorError:
    code = "prometheus-login-refused" if status == 401 else "prometheus-forbidden"
    return ConnectorError(code, retry=False, address=address, status=status)


def _unread(address: str) -> ConnectorError:
    return ConnectorError("prometheus-unreadable", retry=True, address=address)


def _quoted(message: str) -> str:
    """The server's words as the end of our sentence."""
    return f"{excerpt(' '.join(message.split()).rstrip('.'))}."


def first(labels: Labels, names: Iterable[str]) -> str:
    """The value of the first of these labels that has one."""
    return next(filter(None, (labels.get(name, "") for name in names)), "")


def usual_step(series: Iterable[Sequence[Sample]]) -> int | None:
    """Seconds from sample to sample, as most often; whole, so that some milliseconds of jitter do not matter."""
    steps = [
        int((after - before) * 1000) for samples in series for (before, _), (after, _) in pairwise(samples)
    ]
    return max((median_low(steps) + 500) // 1000, 1) if steps else None


def whole(value: Any) -> int | None:
    """The integer that a value is; None for a fraction, NaN or infinity."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    number, parts = value.as_integer_ratio()
    return number if parts == 1 else None
