"""How a connection wants counters of tokens read: of which server, under which names, and whose they are.

Names and labels are those that vLLM (`vllm/v1/metrics/loggers.py`) and LiteLLM's proxy
(`litellm/types/integrations/prometheus.py`) publish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from clusters.connectors.base import ConnectorError
from clusters.connectors.prometheus.matchers import refuse_other
from portal.excerpt import quoted

HOUR = 3600
METER = "llm-tokens"
DIMENSIONS = ("model", "direction")  # that the meter needs
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)


class TokenServer(StrEnum):
    """What serves the models, or stands before them."""

    VLLM = "vllm"
    LITELLM = "litellm"


class Direction(StrEnum):
    """What a token was, as the meter's dimension `direction` says it. Each token is one of them."""

    INPUT = "input"  # without those that are `cached`
    CACHED = "cached"  # of a prompt, and not computed anew
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class ServingPlace:
    """Where jobs serve a model: all of an account, or those of one name."""

    model: str
    cluster: str
    account: str
    job: str = ""  # "": all of the account


@dataclass(frozen=True, slots=True)
class _Published:
    metrics: Mapping[Direction, str]
    account: str
    user: str
    model: str
    empty: str = ""  # what a label says where there is nothing to say


PUBLISHED: Mapping[TokenServer, _Published] = MappingProxyType(
    {
        TokenServer.VLLM: _Published(
            {
                Direction.INPUT: "vllm:prompt_tokens_total",
                Direction.CACHED: "vllm:prefix_cache_hits_total",
                Direction.OUTPUT: "vllm:generation_tokens_total",
            },
            account="namespace",  # of the pod, by Prometheus's own discovery: vLLM knows no users
            user="",
            model="model_name",
        ),
        TokenServer.LITELLM: _Published(
            {
                Direction.INPUT: "litellm_input_tokens_metric_total",
                Direction.CACHED: "litellm_input_cached_tokens_metric_total",
                Direction.OUTPUT: "litellm_output_tokens_metric_total",
            },
            account="team",
            user="hashed_api_key",
            model="model",
            empty="None",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """Raises `ConnectorError` for names that are none. What is None is as the server publishes it.

    `since` is an epoch second: hours before it are not read, whatever Prometheus keeps. `cached` "": such tokens are
    not told apart from the others of the input.
    """

    server: TokenServer
    since: datetime
    meter: str = METER
    account_label: str | None = None
    user_label: str | None = None
    model_label: str | None = None
    input: str | None = None
    cached: str | None = None
    output: str | None = None
    matcher: str | None = None  # None: the one of the connection
    served_by: Mapping[str, tuple[ServingPlace, ...]] = field(
        default_factory=dict
    )  # by model, for reports alone
    metrics: Mapping[Direction, str] = field(init=False)

    def __post_init__(self) -> None:
        metrics = {
            direction: self.published.metrics[direction] if name is None else name
            for direction, name in zip(Direction, (self.input, self.cached, self.output), strict=True)
        }
        metrics = {direction: name for direction, name in metrics.items() if name}
        for name in metrics.values():
            if not _NAME.fullmatch(name):
                example = self.published.metrics[Direction.INPUT]
                raise ConnectorError("option-metric-name", retry=False, metric=quoted(name), example=example)
        if Direction.INPUT not in metrics or Direction.OUTPUT not in metrics:
            raise ConnectorError("option-tokens-unnamed", retry=False)
        for name in (self.account, self.user, self.model):
            if name and not _LABEL.fullmatch(name):
                raise ConnectorError("option-label-name", retry=False, label=quoted(name))
        refuse_other(self.matcher or "")
        if self.since.tzinfo is None or int(self.since.timestamp()) % HOUR:
            raise ConnectorError("option-tokens-since", retry=False)
        object.__setattr__(self, "metrics", metrics)
        places: set[tuple[str, str, str]] = set()
        for place in (place for of_model in self.served_by.values() for place in of_model):
            where = place.cluster, place.account, place.job
            if where in places:
                raise ConnectorError(
                    "option-tokens-served-twice", retry=False, place="/".join(filter(None, where))
                )
            places.add(where)

    @property
    def published(self) -> _Published:
        return PUBLISHED[self.server]

    @property
    def account(self) -> str:
        """The label that holds the account."""
        return self.published.account if self.account_label is None else self.account_label

    @property
    def user(self) -> str:
        """The label that holds who it was: the key; "": nobody is told."""
        return self.published.user if self.user_label is None else self.user_label

    @property
    def model(self) -> str:
        return self.published.model if self.model_label is None else self.model_label

    @property
    def empty(self) -> str:
        return self.published.empty

    @property
    def first_hour(self) -> int:
        return int(self.since.timestamp())
