"""Clusters and what was read from them. Usage is never edited: it is what the scheduler said."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from clusters import meters, quarantine
from clusters.meters import MeterError
from clusters.models import (
    Account,
    AccountBlock,
    Act,
    ApiServer,
    CapacityInterval,
    Cluster,
    Connection,
    DeclaredMeter,
    Pull,
    Quarantined,
    Telemetry,
    UsageRecord,
)
from portal.admin import ReadOnly, Recorded, epoch, portal_page
from portal.sentences import sentence


class SharesField(forms.CharField):
    """Parts of a GPU by model, and MIG profile or shard, one a line: `a100 1g.10gb 1/4`."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
    default_error_messages: ClassVar = {
        "shares": "Write one a line: the GPU's model, the MIG profile or shard, and the share, like a100 1g.10gb 1/4."
    }

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        lines = [(model, *share) for model, profiles in value.items() for share in profiles.items()]
        return "\n".join(" ".join(line).strip() for line in lines)

    def to_python(self, value: Any) -> Any:
        shares: dict[str, dict[str, str]] = {}
        for line in str(value or "").splitlines():
            match line.rsplit(maxsplit=2):  # a model may have spaces in its name
                case [model, profile, share]:
                    shares.setdefault(model, {})[profile] = share
                case [profile, share] if profile.startswith("shard"):  # of every model
                    shares.setdefault("", {})[profile] = share
                case [_, *_]:
                    raise forms.ValidationError(self.error_messages["shares"])
        return shares

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.prepare_value(initial) != data)


class ClusterForm(forms.ModelForm[Cluster]):
    shares = SharesField(
        label="Shares of MIG slices and shards",
        required=False,
        help_text="Parts of a GPU, before the known ones, and Slurm's shards, one a line: a100 1g.10gb 1/4, "
        "or a100 shard@gpu[05-08] 1/8.",
    )


@admin.register(Cluster)
class ClusterAdmin(Recorded[Cluster]):
    view_on_site = portal_page("operator_cluster", "name")
    form = ClusterForm
    list_display = ("name", "kind", "timezone", "complete_through")
    search_fields = ("name",)
    ordering = ("name",)
    fields = (
        "name",
        "kind",
        "timezone",
        "shares",
        "may_end_jobs",
        "job_prices",
        "energy_meter",
        "complete_through",
    )
    readonly_fields = ("complete_through",)

    def has_delete_permission(self, request: HttpRequest, obj: Cluster | None = None) -> bool:
        return False


class MeterForm(forms.ModelForm[DeclaredMeter]):
    def clean_counted(self) -> str:
        """As `declare_meter` has it, before the table refuses an empty one."""
        return self.cleaned_data["counted"] or str(self.cleaned_data.get("unit", ""))


@admin.register(DeclaredMeter)
class MeterAdmin(Recorded[DeclaredMeter]):
    """What programs push sums of; as soon as one came, only dimensions can be added."""

    form = MeterForm
    refusals = (MeterError,)
    list_display = ("name", "title", "unit", "dimensions", "first_used_at")
    search_fields = ("name", "title")
    ordering = ("name",)
    fields = (
        "name",
        "title",
        "unit",
        "counted",
        "per_unit",
        "decimals",
        "dimensions",
        "unit_code",
        "first_used_at",
    )
    readonly_fields = ("first_used_at",)

    def get_readonly_fields(self, request: HttpRequest, obj: DeclaredMeter | None = None) -> tuple[str, ...]:
        return ("name", *self.readonly_fields) if obj else self.readonly_fields

    def has_delete_permission(self, request: HttpRequest, obj: DeclaredMeter | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: DeclaredMeter, form: Any, change: bool) -> None:
        columns = {name: getattr(obj, name) for name in self.fields if name != "first_used_at"}
        obj.pk = meters.declare_meter(**columns).pk


@admin.register(Connection)
class ConnectionAdmin(ReadOnly[Connection]):
    """To look at, without its secrets; the cluster's page on the portal has the form."""

    view_on_site = portal_page("operator_cluster", "cluster.name")
    list_display = ("cluster", "base_url", "enabled", "last_success_at", "failures", "next_pull_at")
    list_select_related = ("cluster",)
    ordering = ("cluster__name",)
    fields = (
        *("cluster", "base_url", "unix_socket", "slurm_cluster", "options", "enabled", "user"),
        *("credentials_changed_at", "ca", "client_certificate", "first_usage_from", "every", "look_back"),
        *("coverage_needed", "release", "api_version", "last_success_at", "next_pull_at", "failures"),
        "last_error",
    )


@admin.register(Telemetry)
class TelemetryAdmin(ReadOnly[Telemetry]):
    """To look at; `[cluster.telemetry]` of a configuration file describes it."""

    view_on_site = portal_page("operator_cluster", "cluster.name")
    list_display = ("cluster", "base_url", "enabled", "complete_through", "failures", "next_at")
    list_select_related = ("cluster",)
    ordering = ("cluster__name",)
    fields = (
        *("cluster", "base_url", "unix_socket", "user", "options", "enabled", "credentials_changed_at"),
        *("complete_through", "last_success_at", "next_at", "failures", "last_error", "notes"),
    )


@admin.register(ApiServer)
class ApiServerAdmin(ReadOnly[ApiServer]):
    """To look at; `[cluster.api_server]` of a configuration file describes it."""

    view_on_site = portal_page("operator_cluster", "cluster.name")
    list_display = ("cluster", "base_url", "enabled", "credentials_changed_at")
    list_select_related = ("cluster",)
    ordering = ("cluster__name",)
    fields = (
        *("cluster", "base_url", "unix_socket", "enabled", "dedicated_cluster_queues"),
        *("always_resource_quota", "credentials_changed_at"),
    )


@admin.register(CapacityInterval)
class CapacityIntervalAdmin(ReadOnly[CapacityInterval]):
    since_at = epoch("since", "since")
    until_at = epoch("until", "until")

    list_display = ("cluster", "node", "gpu_model", "gpus", "state", "since_at", "until_at")
    list_filter = ("cluster", "state")
    list_select_related = ("cluster",)
    search_fields = ("node",)
    ordering = ("-id",)


@admin.register(Account)
class AccountAdmin(Recorded[Account]):
    """Accounts come with their usage; one can be made before its first job, so that it has an owner by then."""

    list_display = ("name", "cluster")
    list_filter = ("cluster",)
    list_select_related = ("cluster",)
    search_fields = ("name",)
    ordering = ("cluster__name", "name")

    def has_change_permission(self, request: HttpRequest, obj: Account | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Account | None = None) -> bool:
        return False


class ReasonForm(ActionForm):
    """Stands beside the choice of an action above the list."""

    reason = forms.CharField(required=False, max_length=500)


@admin.register(Quarantined)
class QuarantinedAdmin(ReadOnly[Quarantined]):
    list_display = ("id", "cluster", "code", "reason", "source", "line", "last_seen", "resolved_at")
    list_filter = ("cluster", "code", ("resolved_at", admin.EmptyFieldListFilter))
    list_select_related = ("cluster",)
    search_fields = ("source_key", "raw")
    ordering = ("-id",)
    actions = ("dismiss",)
    action_form = ReasonForm

    @admin.action(description="Dismiss with the reason", permissions=["view"])
    def dismiss(self, request: HttpRequest, queryset: QuerySet[Quarantined]) -> None:
        try:
            count = quarantine.dismiss(
                rows=queryset, reason=request.POST.get("reason", ""), who=str(request.user)
            )
        except ValueError as error:
            self.message_user(request, sentence(error), messages.ERROR)
        else:
            self.message_user(request, f"Dismissed: {count}.", messages.SUCCESS)


@admin.register(Pull)
class PullAdmin(ReadOnly[Pull]):
    list_display = (
        *("id", "cluster", "source", "started_at", "outcome", "since", "until", "as_of"),
        *("read", "new", "unchanged", "revised", "quarantined"),
    )
    list_filter = ("cluster", "outcome")
    list_select_related = ("cluster",)
    ordering = ("-id",)


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnly[UsageRecord]):
    submitted_at = epoch("submitted", "submitted")
    eligible_at = epoch("eligible", "eligible")
    started_at = epoch("started", "started")
    ended_at = epoch("ended", "ended")
    seen_until_at = epoch("seen_until", "seen until")

    list_display = (
        *("job_id", "account", "user", "name", "state", "gpus", "gpu_model"),
        *("submitted_at", "started_at", "ended_at", "revision"),
    )
    list_select_related = ("account__cluster",)
    list_filter: ClassVar[tuple[str, ...]] = ("cluster",)
    search_fields = ("=job_id", "=source_key")
    search_help_text = "A job's id as people write it, or its key (job id raw @ submit second)."
    ordering = ("-id",)
    fields = (
        *("cluster", "account", "source_key", "revision", "job_id", "name", "user", "queue", "qos"),
        *("priority_class", "gpus", "gpu_model", "mig_profile", ("share_num", "share_den"), "cpu_milli"),
        *(
            "memory_mib",
            "gpu_memory_mib",
            "billing",
            "nodes",
            "node_list",
            "requested",
            "time_limit",
            "state",
            "exit_code",
        ),
        *("submitted_at", "eligible_at", "started_at", "ended_at", "seen_until_at", "suspended", "last_seen"),
    )
    readonly_fields = ("submitted_at", "eligible_at", "started_at", "ended_at", "seen_until_at")


@admin.register(Act)
class ActAdmin(ReadOnly[Act]):
    list_display = ("id", "cluster", "kind", "target", "outcome", "who", "why", "intended_at", "error")
    list_filter = ("cluster", "kind", "outcome")
    list_select_related = ("cluster",)
    search_fields = ("=account", "target")
    ordering = ("-id",)


@admin.register(AccountBlock)
class AccountBlockAdmin(ReadOnly[AccountBlock]):
    list_display = (
        "id",
        "cluster",
        "account",
        "user",
        "limits",
        "changed",
        "blocked_by",
        "lifted_by",
        "ended_at",
    )
    list_filter = ("cluster", ("ended_at", admin.EmptyFieldListFilter))
    list_select_related = ("cluster", "blocked_by__cluster", "lifted_by__cluster")
    search_fields = ("=account",)
    ordering = ("-id",)
