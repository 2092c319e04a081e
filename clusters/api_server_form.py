"""The form in which the operator tells how the API server of a Kubernetes cluster is reached, to block accounts."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from clusters.connection_form import AddressForm
from clusters.models import ApiServer
from clusters.models.api_server import API_SECRETS
from clusters.models.endpoint import validate_address
from clusters.models.secrets_guard import PUBLIC, holds_private_key


class ApiServerForm(AddressForm[ApiServer]):
    """Where it listens, and which objects may be written for a block."""

    secrets = API_SECRETS

    queues = forms.CharField(
        required=False,
        label="Dedicated ClusterQueues",
        help_text="Of Kueue, one a line: those of one account alone. They are stopped instead of its LocalQueues.",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )

    class Meta:
        model = ApiServer
        fields: ClassVar = [
            *("base_url", "unix_socket", "ca", "client_certificate", "always_resource_quota", "enabled"),
        ]
        widgets: ClassVar = {
            "ca": forms.Textarea(attrs={"rows": 3}),
            "client_certificate": forms.Textarea(attrs={"rows": 3}),
        }
        help_texts: ClassVar = {
            "base_url": "As `kubectl cluster-info` prints it: https://kube.example.org:6443."
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["queues"].initial = "\n".join(self.instance.dedicated_cluster_queues)

    def clean_base_url(self) -> str:
        text = str(self.cleaned_data["base_url"])
        if text:
            validate_address(text)
        return text

    def clean_queues(self) -> list[str]:
        lines = [line.strip() for line in str(self.cleaned_data["queues"]).splitlines()]
        return list(dict.fromkeys(filter(None, lines)))

    def clean(self) -> dict[str, Any]:
        """As `AddressForm`, with an address."""
        cleaned = super().clean()
        for name in PUBLIC:
            if problem := holds_private_key(str(cleaned.get(name) or "")):
                self.add_error(name, f"This {problem}")
        if not self.errors and not (cleaned.get("base_url") or cleaned.get("unix_socket")):
            self.add_error("base_url", "Write where the API server listens.")
        return cleaned

    def save(self, commit: bool = True) -> ApiServer:
        self.instance.dedicated_cluster_queues = self.cleaned_data["queues"]
        return super().save(commit)
