"""The form in which the operator tells how a cluster is reached. What it keeps secret it takes and never shows."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import fields
from datetime import datetime
from typing import Any, ClassVar, TypeVar, cast

from django import forms
from django.views.decorators.debug import sensitive_variables

from clusters import credential_files
from clusters.connectors.base import ConnectorError
from clusters.connectors.gpustack.options import GpuStackOptions
from clusters.models import ClusterKind, Connection, DeclaredMeter
from clusters.models.connection import FITTING, SECRETS
from clusters.models.endpoint import Address
from clusters.models.secrets_guard import entered_for_elsewhere
from portal.core.vault import VaultError, seal
from portal.days import check_day
from portal.sentences import NO_CHOICE

A = TypeVar("A", bound=Address)
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
METERS = [field.name for field in fields(GpuStackOptions)]
AWS = {"region", "access_key", "secret_key"}
LABELS = {
    "token": "Token",
    "jwt_key": "Signing key",
    "client_key": "Private key of the client certificate",
    "headers": "Extra headers",
    "password": "Password",
    "aws": "AWS keys",
}
HELP = {
    "token": "Slurm: a JWT, as `scontrol token` prints it. Prometheus, Kubernetes: a bearer token. "
    "GPUStack: an administrator's API key.",
    "jwt_key": "Instead of a token: the bytes of jwt_hs256.key in base64 (base64 -w0 jwt_hs256.key).",
    "client_key": "PEM.",
    "headers": "For an authenticating proxy, or a tenant's name (X-Scope-OrgID), one a line: Name: value.",
    "password": "Prometheus: the user's, for basic authentication.",
    "aws": (
        "Prometheus of AWS, one a line: region: eu-central-1, then access_key:, secret_key: and, where there is one, "
        "session_token:. The region alone: the identity that AWS gives the pod of the workers."
    ),
}


def misfits(kind: str) -> list[str]:
    """Fields that a cluster of this kind has no use for."""
    fitting = FITTING.get(ClusterKind(kind), ())
    other = {name: None for columns in FITTING.values() for name in columns if name not in fitting}
    return [f"new_{name}" if name in SECRETS else name for name in other]


@sensitive_variables()
def _lines(text: object, message: str) -> str:
    """`Name: value` a line, as the text of a JSON object; "" for none. Raises ValidationError with `wanted`."""
    values = {}
    for line in str(text).splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and HEADER.fullmatch(name.strip())):
            raise forms.ValidationError(message)
        if line.strip():
            values[name.strip()] = _no_file(value.strip())
    return json.dumps(values, sort_keys=True) if values else ""


def _no_file(text: str) -> str:
    """Whoever has the session of an operator could otherwise send any file of the host to an address of their own."""
    if credential_files.path_of(text) is not None:
        raise forms.ValidationError(
            "A file is named in a configuration file, for `apply` at the shell: enter the text itself here."
        )
    return text


class Unseen(forms.Textarea):
    """Takes a secret and never gives it back, not even beside a mistake in another field.

    A text area, since a browser offers to keep what is typed into a field for passwords.
    """

    def __init__(self, lines: int) -> None:
        super().__init__(attrs={"rows": lines, "autocomplete": "off", "spellcheck": "false"})

    def format_value(self, value: object) -> str:  # noqa: ARG002 - that is the point
        return ""


class AddressForm(forms.ModelForm[A]):
    """An address with its secrets, which are entered into `new_…`; left empty, what is kept stays.

    `forget` takes some away. `secrets` are the columns that rest encrypted.
    """

    secrets: ClassVar[tuple[str, ...]] = ()

    new_token = forms.CharField(required=False, widget=Unseen(3))
    new_client_key = forms.CharField(required=False, widget=Unseen(4))
    new_headers = forms.CharField(required=False, widget=Unseen(3))
    forget = forms.MultipleChoiceField(
        required=False,
        choices=list(LABELS.items()),
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        label="Take away",
        error_messages=NO_CHOICE,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_stored = self.instance.pk is not None
        for name in self.secrets:
            field = self.fields[f"new_{name}"]
            is_set = is_stored and bool(getattr(self.instance, name))
            field.label = LABELS[name]
            field.help_text = f"{'One is kept; leave empty to keep it. ' if is_set else ''}{HELP[name]}"
        stored = [(name, LABELS[name]) for name in self.secrets if is_stored and getattr(self.instance, name)]
        cast("forms.MultipleChoiceField", self.fields["forget"]).choices = stored
        if not stored:
            del self.fields["forget"]

    @sensitive_variables()
    def clean_new_headers(self) -> str:
        return _lines(self.cleaned_data["new_headers"], "Write one header a line, as Name: value.")

    def clean_ca(self) -> str:
        return self._named_before("ca")

    def clean_client_certificate(self) -> str:
        return self._named_before("client_certificate")

    def _named_before(self, name: str) -> str:
        """A file that `apply` named stays named."""
        text = str(self.cleaned_data[name] or "")
        return text if text == getattr(self.instance, name) else _no_file(text)

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """Seals what was entered, and takes the plain text out of what the form holds."""
        cleaned = super().clean() or self.cleaned_data
        self._refuse_another_address(cleaned)
        for name in self.secrets:
            entered = str(cleaned.pop(f"new_{name}", "") or "").strip()
            try:
                if entered or name in cleaned.get("forget", ()):
                    setattr(self.instance, name, seal(_no_file(entered)))
            except forms.ValidationError as error:
                self.add_error(f"new_{name}", error)
            except VaultError as error:
                raise forms.ValidationError(str(error)) from None
        return cleaned

    def _refuse_another_address(self, cleaned: dict[str, Any]) -> None:
        entered = {name for name in self.secrets if cleaned.get(f"new_{name}")} | {*cleaned.get("forget", ())}
        secrets = entered_for_elsewhere(self.instance, cleaned, entered=entered, secrets=self.secrets)
        if secrets:
            names = ", ".join(LABELS[name] for name in secrets)
            self.add_error(
                None,
                "What is kept secret was entered for another address: with this one, enter it again or take it away "
                f"({names}).",
            )


class ConnectionForm(AddressForm[Connection]):
    """How usage of the instance's cluster is read."""

    secrets = SECRETS

    new_jwt_key = forms.CharField(required=False, widget=Unseen(2))
    new_password = forms.CharField(required=False, widget=Unseen(1))
    new_aws = forms.CharField(required=False, widget=Unseen(4))

    class Meta:
        model = Connection
        fields: ClassVar = [
            *("base_url", "unix_socket", "ca", "client_certificate", "user", "slurm_cluster"),
            *("options", "first_usage_from", "every", "look_back", "coverage_needed", "enabled"),
        ]
        widgets: ClassVar = {
            "ca": forms.Textarea(attrs={"rows": 3}),
            "client_certificate": forms.Textarea(attrs={"rows": 3}),
            "options": forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        }

    def __init__(self, *args: Any, moment: datetime, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.moment = moment
        self.fields["coverage_needed"].required = False
        first = self.fields["first_usage_from"]
        first.help_text = f"In UTC. {first.help_text}"
        for name in misfits(self.instance.cluster.kind):
            self.fields.pop(name, None)

    def clean_new_jwt_key(self) -> str:
        text = str(self.cleaned_data["new_jwt_key"]).strip()
        try:
            base64.b64decode(text, validate=True)
        except ValueError:  # of what is not ASCII, too
            raise forms.ValidationError(
                "This is not base64; make it with base64 -w0 jwt_hs256.key."
            ) from None
        return text

    @sensitive_variables()
    def clean_new_aws(self) -> str:
        message = "Write region, access_key and secret_key, one a line, as name: value; or region alone."
        text = _lines(self.cleaned_data["new_aws"], message)
        values: dict[str, str] = json.loads(text) if text else dict.fromkeys(AWS, "")
        if values.keys() == {"region"}:
            from clusters.connectors.prometheus.login import AwsIdentity  # loads the client

            try:
                AwsIdentity(values["region"])
            except ConnectorError as error:
                raise forms.ValidationError(str(error)) from error
        elif values.keys() - {"session_token"} != AWS:
            raise forms.ValidationError(message)
        return text

    def clean_first_usage_from(self) -> datetime | None:
        """Nothing is read before it, so one in the future would read nothing, or be passed over."""
        first: datetime | None = self.cleaned_data["first_usage_from"]
        if first is not None:
            check_day(first)
            if first > self.moment:
                raise forms.ValidationError("This is in the future: enter when the first usage was.")
        return first

    def clean_coverage_needed(self) -> int:
        """Left empty, what is kept stays."""
        value: int | None = self.cleaned_data["coverage_needed"]
        return self.instance.coverage_needed if value is None else value

    def clean_options(self) -> dict[str, Any]:
        return self.cleaned_data["options"] or {}

    def save(self, commit: bool = True) -> Connection:
        """What was wrong with it may be right now, so it is due at once."""
        self.instance.next_pull_at = None
        return super().save(commit)


def meter_choices() -> list[tuple[str, str]]:
    """The declared meters. One query."""
    return [(name, name) for name in DeclaredMeter.objects.order_by("name").values_list("name", flat=True)]


class GpuStackForm(ConnectionForm):
    """How usage of a GPUStack is read: what each kind is counted as is chosen among the declared meters."""

    gpu = forms.ChoiceField(required=False, label="Instances with GPUs", help_text="In GPU-hours.")
    cpu = forms.ChoiceField(required=False, label="Instances without GPUs", help_text="In unit-hours.")
    storage = forms.ChoiceField(required=False, label="Volumes", help_text="In GiB-hours.")
    tokens = forms.ChoiceField(required=False, label="Tokens", help_text="By model and direction.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "Not read"), *meter_choices()]
        for name in METERS:
            cast("forms.ChoiceField", self.fields[name]).choices = choices
            self.initial[name] = self.instance.options.get(name, "")
        self.fields["options"].widget = forms.HiddenInput()
        self.order_fields(METERS)  # before the options, which are made of them

    def clean_options(self) -> dict[str, Any]:
        options = {name: meter for name in METERS if (meter := self.cleaned_data.get(name))}
        if not options:
            self.add_error("gpu", "Choose what is read: at least one kind of usage needs a meter.")
        return options
