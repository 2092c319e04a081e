"""Options of a connection as they are written down: tables of texts, each mistake a sentence with its key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from clusters.connectors.base import ConnectorError
from clusters.connectors.mig import Share, by_profile, own_shares
from clusters.connectors.prometheus.catalog import QUEUES, SAMPLED, Preset
from clusters.connectors.prometheus.options import (
    AccountFrom,
    Attribution,
    ChargeFrom,
    Claims,
    CpuMemory,
    Hami,
    LabelNames,
    PrometheusOptions,
    Scope,
    UseOptions,
    Utilisation,
)
from clusters.connectors.prometheus.token_options import Direction, ServingPlace, TokenOptions, TokenServer
from portal.excerpt import quoted

Choice = TypeVar("Choice", bound=StrEnum)
Readers = Mapping[str, Callable[[object, str], Any]]
"""By key, what reads its value."""

_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_SPELLED = re.compile(
    r"[\w.+*?|()\[\]-]+", re.ASCII
)  # what needs no quoting between the quotes of a selector


def options_from(tables: object) -> PrometheusOptions:
    """What these tables mean; {} is every default.

    Raises `ConnectorError` with one sentence that names the key which is wrong, and what would do.
    """
    table = _table(tables, "options")
    for key in table:
        if key not in _READERS:
            raise _wrong("option-unknown", key=quoted(key), allowed=", ".join(sorted(_READERS)))
    read = {key: _READERS[key](value, key) for key, value in table.items()}
    preset = read.get("preset")
    if preset in SAMPLED and (other := sorted(read.keys() - _OF_SAMPLED)):
        raise _wrong("option-of-pods", key=other[0], preset=preset, allowed=", ".join(_OF_SAMPLED))
    source = AccountFrom.QUEUE if preset in QUEUES else AccountFrom.NAMESPACE
    account = Attribution(source=read.pop("account_from", source), label=read.pop("account_label", ""))
    labelled = account.source in {AccountFrom.NAMESPACE_LABEL, AccountFrom.POD_LABEL}
    if account.label and not labelled:
        raise _wrong("option-account-from-missing")
    if labelled and not account.label:
        raise _wrong("option-account-label-unnamed", value=quoted(account.source.value))
    return PrometheusOptions(**read, account=account)


def _wrong(code: str, **values: object) -> ConnectorError:
    return ConnectorError(code, retry=False, **values)


def _table(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong("option-no-table" if key != "options" else "options-no-table", key=key)
    return value


def _text(value: object, key: str) -> str:
    if type(value) is not str or not value.isprintable():
        raise _wrong("option-no-text", key=key)
    return value.strip()


def _texts(value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong("option-no-list", key=key)
    return tuple(_text(item, key) for item in value)


def _choice(of: type[Choice]) -> Callable[[object, str], Choice]:
    def read(value: object, key: str) -> Choice:
        try:
            return of(_text(value, key))
        except ValueError:
            raise _wrong("option-no-choice", key=key, value=quoted(value), allowed=", ".join(of)) from None

    return read


def _labels(value: object, key: str) -> LabelNames:
    table = _table(value, key)
    for name in table:
        if name not in LabelNames.__slots__:
            raise _wrong(
                "option-unknown-key", key=key, name=quoted(name), allowed=", ".join(LabelNames.__slots__)
            )
    return LabelNames(**{name: _text(item, f"{key}.{name}") for name, item in table.items()})


def _read(table: Mapping[str, Any], key: str, readers: Readers) -> dict[str, Any]:
    """What the keys of a table mean. Raises `ConnectorError` for another one."""
    for name in table:
        if name not in readers:
            allowed = ", ".join(sorted(readers))
            raise _wrong("option-unknown-key", key=key, name=quoted(name), allowed=allowed)
    return {name: readers[name](item, f"{key}.{name}") for name, item in table.items()}


def _utilisation(value: object, key: str) -> Utilisation:
    return Utilisation(**_read(_table(value, key), key, _OF_UTILISATION))


def _use(value: object, key: str) -> UseOptions:
    return UseOptions(**_read(_table(value, key), key, _OF_USE))


def _divisor(value: object, key: str) -> Decimal:
    """A count, or a decimal number as text: never a float, which is not what was written."""
    if type(value) is int or (type(value) is str and _NUMBER.fullmatch(value)):
        return Decimal(value)
    raise _wrong("option-no-number", key=key)


def _resources(value: object, key: str) -> str:
    text = _text(value, key)
    try:
        re.compile(text)
    except re.error:
        text = ""
    if not _SPELLED.fullmatch(text):
        raise _wrong("option-no-expression", key=key, value=quoted(value))
    return text


def _shares(value: object, key: str) -> dict[tuple[str, str], Share]:
    return by_profile(own_shares(value, key))


def _models(value: object, key: str) -> dict[str, str]:
    return {product: _text(name, f"{key}.{product}") for product, name in _table(value, key).items()}


def _parameters(value: object, key: str) -> dict[str, str | list[str]]:
    return {
        name: list(_texts(item, f"{key}.{name}"))
        if isinstance(item, list | tuple)
        else _text(item, f"{key}.{name}")
        for name, item in _table(value, key).items()
    }


def _flag(value: object, key: str) -> bool:
    if type(value) is not bool:
        raise _wrong("option-no-flag", key=key)
    return value


def _hour(value: object, key: str) -> datetime:
    """`2026-12-01T00:00Z`."""
    try:
        moment = datetime.fromisoformat(_text(value, key))
    except ValueError:
        raise _wrong("option-tokens-since") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _served_by(value: object, key: str) -> dict[str, tuple[ServingPlace, ...]]:
    """By model `CLUSTER/ACCOUNT` or `CLUSTER/ACCOUNT/JOB`, or a list of them."""
    places: dict[str, tuple[ServingPlace, ...]] = {}
    for model, written in _table(value, key).items():
        texts = (
            _texts(written, f"{key}.{model}")
            if isinstance(written, list)
            else (_text(written, f"{key}.{model}"),)
        )
        split = [text.split("/") for text in texts]
        if not all(2 <= len(parts) <= 3 and all(parts) for parts in split):
            raise _wrong("option-tokens-served-by", key=f"{key}.{model}")
        places[model] = tuple(ServingPlace(model, *parts) for parts in split)
    return places


def _tokens(value: object, key: str) -> TokenOptions:
    table = _table(value, key)
    for name in ("server", "since"):
        if name not in table and table.keys() <= _OF_TOKENS.keys():
            raise _wrong("option-tokens-missing", name=name)
    return TokenOptions(**_read(table, key, _OF_TOKENS))


_OF_TOKENS: Readers = {
    "server": _choice(TokenServer),
    "since": _hour,
    "served_by": _served_by,
    **dict.fromkeys(("meter", "account_label", "user_label", "model_label", "matcher", *Direction), _text),
}
_OF_USE: Readers = dict.fromkeys(("cpu", "memory", "matcher"), _text)
_OF_UTILISATION: Readers = {
    "scope": _choice(Scope),
    "metric": _text,
    "divisor": _divisor,
    "matcher": _text,
}
_READERS: Readers = {
    "matcher": _text,
    "labels": _labels,
    "account_from": _choice(AccountFrom),
    "account_label": _text,
    "user_label": _text,
    "job_labels": _texts,
    "charge_from": _choice(ChargeFrom),
    "cpu_memory": _choice(CpuMemory),
    "hami": _choice(Hami),
    "claims": _choice(Claims),
    "resources": _resources,
    "reservations": _texts,
    "shares": _shares,
    "models": _models,
    "parameters": _parameters,
    "use": _use,
    "utilisation": _utilisation,
    "preset": _choice(Preset),
    "pods": _flag,
    "tokens": _tokens,
    "volumes": _text,
    "volume_label": _text,
}
_OF_SAMPLED = ("matcher", "models", "parameters", "preset", "tokens")
