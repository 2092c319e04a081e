"""The form of a Prometheus: a field for each option that operators set, and the rare ones as text beside them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from clusters.connection_form import ConnectionForm, meter_choices
from clusters.connectors.base import ConnectorError
from portal.sentences import NO_CHOICE, sentence


@dataclass(frozen=True, slots=True)
class Option:
    """`path` leads to its value in the options. `standard` is what an empty field means; of a choice, among its texts.

    `choices` are the texts of an option's values; `is_meter`: it is chosen among the declared meters.
    """

    path: tuple[str, ...]
    label: str
    help: str
    standard: str = ""
    choices: Mapping[str, str] | None = None
    is_meter: bool = False

    @property
    def name(self) -> str:
        """Of its field."""
        return "_".join(self.path)


PODS = (
    Option(
        ("matcher",),
        "Matcher",
        'Added to every selector, where one server watches several clusters: cluster="kube".',
    ),
    Option(
        ("preset",),
        "Preset",
        "The queues that pods are in; netdata and Genv are for machines without a scheduler.",
        "None",
        {
            "kueue": "Queues of Kueue",
            "volcano": "Queues of Volcano",
            "kai": "Queues of KAI",
            "netdata": "GPU memory of each user, by netdata",
            "genv": "Devices of each user, by Genv",
        },
    ),
    Option(
        ("account_from",),
        "Account of a pod",
        "Who pays for it.",
        "Its namespace; with a preset of queues, its queue",
        {
            "namespace": "Its namespace",
            "namespace label": "A label of its namespace",
            "pod label": "A label of the pod",
            "queue": "Its queue",
        },
    ),
    Option(
        ("account_label",), "Label of the account", "As kube-state-metrics writes it: label_billing_tenant."
    ),
    Option(
        ("user_label",), "Label of the user", "Of pods, written the same way. Without it pods have no user."
    ),
    Option(
        ("charge_from",),
        "Charged from",
        "",
        "When the pod gets its node",
        {"scheduled": "When the pod gets its node", "started": "When its kubelet starts it"},
    ),
)
HELD = (
    Option(
        ("cpu_memory",),
        "CPU and memory",
        "As pods request them.",
        "Of pods with devices",
        {"off": "Not read", "devices": "Of pods with devices", "all": "Of all pods"},
    ),
    Option(
        ("use", "cpu"),
        "CPU beyond requests",
        "The meter of core-hours for what pods use more.",
        is_meter=True,
    ),
    Option(
        ("use", "memory"),
        "Memory beyond requests",
        "The meter of GiB-hours for what pods use more.",
        is_meter=True,
    ),
    Option(("volumes",), "Persistent volumes", "The meter of GiB-hours.", is_meter=True),
    Option(
        ("volume_label",),
        "Label of a volume's account",
        "Of claims: label_billing_tenant. Without it, the account of the namespace.",
    ),
    Option(
        ("hami",),
        "vGPUs of HAMi",
        "By what each counts as a part of its GPU.",
        "There is no HAMi",
        {
            "off": "There is no HAMi",
            "cores": "Its cores",
            "memory": "Its memory",
            "larger": "The larger of both",
        },
    ),
    Option(
        ("claims",),
        "Resource claims",
        "No metric tells what a claim holds (DRA).",
        "To quarantine",
        {"quarantine": "To quarantine", "off": "Ignored: they hold no GPUs"},
    ),
    Option(
        ("utilisation", "scope"),
        "How busy devices are",
        "How far from a job's own devices averages may stand in.",
        "By its own devices alone",
        {
            "off": "Not read",
            "device": "By its own devices alone",
            "node": "Else by those of the node",
            "model": "Else by those of the model",
            "cluster": "Else by all of the cluster",
        },
    ),
)
TOKENS = (
    Option(
        ("tokens", "server"),
        "Server of models",
        "Whose counters of tokens are read.",
        "Not read",
        {"vllm": "vLLM", "litellm": "LiteLLM"},
    ),
    Option(("tokens", "since"), "Since", "The first hour that counts, in UTC: 2026-12-01T00:00Z."),
    Option(("tokens", "meter"), "Meter", "Of tokens, by model and direction.", "llm-tokens", is_meter=True),
)
OPTIONS = (*PODS, *HELD, *TOKENS)
FIELD_OF_MISTAKE = {
    "option-account-from-missing": "account_from",
    "option-account-label-unnamed": "account_label",
    "option-account-label-missing": "account_label",
    "option-matcher": "matcher",
    "option-preset-missing": "preset",
    "option-tokens-since": "tokens_since",
    "option-volume-label-alone": "volume_label",
    "option-volumes-alone": "volumes",
}
"""Where a mistake is told that names no key."""


class PrometheusForm(ConnectionForm):
    """How usage is read from a Prometheus. What has no field here stays in `options`, as it was."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        meters = meter_choices()
        rest = copy.deepcopy(self.instance.options or {})
        for option in OPTIONS:
            value = _take(rest, option.path)
            self.fields[option.name] = _field(option, meters, value)
            self.initial[option.name] = value
        self.initial["options"] = rest
        self.fields["options"].label = "Further options"
        self.fields[
            "options"
        ].help_text = "As a JSON object, with the keys of the documentation: labels, models, shares …"
        self.order_fields(list(names_of(OPTIONS)))  # before the options, which are made of them

    def clean_options(self) -> dict[str, Any]:
        from clusters.connectors.prometheus.option_parsing import options_from  # loads the client

        options: dict[str, Any] = copy.deepcopy(super().clean_options())
        for option in OPTIONS:
            if value := self.cleaned_data.get(option.name):
                _put(options, option.path, value)
        try:
            options_from(options)
        except ConnectorError as error:
            name = self._field_of(error)
            if name == "options":
                raise forms.ValidationError(sentence(error)) from error
            self.add_error(name, sentence(error))
            stored: dict[str, Any] = self.instance.options
            return stored
        return options

    def _field_of(self, mistake: ConnectorError) -> str:
        key = str(mistake.values.get("key", "")).replace(".", "_")
        if mistake.code == "option-tokens-missing":
            key = f"tokens_{mistake.values['name']}"
        name = FIELD_OF_MISTAKE.get(mistake.code, key)
        return name if name in self.fields else "options"


def names_of(options: Iterable[Option]) -> tuple[str, ...]:
    """Of their fields."""
    return tuple(option.name for option in options)


def _field(option: Option, meters: list[tuple[str, str]], value: object) -> forms.Field:
    if option.choices is None and not option.is_meter:
        return forms.CharField(required=False, label=option.label, help_text=option.help)
    choices = meters if option.is_meter else list((option.choices or {}).items())
    standard = option.standard or "Not read"
    if isinstance(value, str) and value and value not in dict(choices):
        choices = [*choices, (value, value)]  # what is stored stays to be chosen, whatever was declared since
    return forms.ChoiceField(
        required=False,
        label=option.label,
        help_text=option.help,
        choices=[("", standard if option.is_meter else f"Standard: {standard}"), *choices],
        error_messages=NO_CHOICE,
    )


def _take(table: dict[str, Any], path: tuple[str, ...]) -> object:
    """The text there, taken out, with the tables that are empty then; "" for none, and for what is no text."""
    head, *rest = path
    value = table.get(head)
    if rest:
        if not isinstance(value, dict):
            return ""
        text = _take(value, tuple(rest))
        if not value:
            del table[head]
        return text
    return table.pop(head) if isinstance(value, str) else ""


def _put(table: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    """Into tables that are made where they lack; what is no table stays, and is refused as such."""
    head, *rest = path
    if not rest:
        table[head] = value
    elif isinstance(inner := table.setdefault(head, {}), dict):
        _put(inner, tuple(rest), value)
