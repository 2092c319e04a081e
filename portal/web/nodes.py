"""The form that declares a cluster's nodes, with a preview of what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.forms import formset_factory
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from clusters import declared_nodes
from clusters.capacity import CapacityError
from clusters.declared_nodes import MOST_GPUS, Declaration, Node
from clusters.models import CapacityState, Cluster
from portal.core.tenants.access import Right
from portal.days import check_day
from portal.sentences import NO_CHOICE, sentence
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

EMPTY_ROWS = 3


def _day(label: StrOrPromise) -> forms.DateField:
    return forms.DateField(
        label=label,
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        validators=[check_day],
    )


class NodeForm(forms.Form):
    """One node; a row without a name is none."""

    use_required_attribute = False

    name = forms.CharField(
        label=gettext_lazy("Node"),
        max_length=255,
        required=False,
        widget=forms.TextInput(attrs={"placeholder": gettext_lazy("Node name")}),
    )
    gpu_model = forms.CharField(label=gettext_lazy("GPU model"), max_length=255, required=False)
    gpus = forms.IntegerField(label=gettext_lazy("GPUs"), min_value=1, max_value=MOST_GPUS, required=False)
    state = forms.ChoiceField(
        label=gettext_lazy("State"),
        choices=CapacityState.choices,
        initial=CapacityState.UP,
        error_messages=NO_CHOICE,
    )
    since = _day(gettext_lazy("From"))
    until = _day(gettext_lazy("Until"))

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("name"):
            for key, what in (
                ("gpu_model", _("Enter the model as jobs name it.")),
                ("gpus", _("Enter the number of GPUs.")),
            ):
                if not values.get(key) and key not in self.errors:
                    self.add_error(key, what)
        return values

    @property
    def node(self) -> Node | None:
        values = self.cleaned_data
        return Node(**values) if values.get("name") else None


NodeForms = formset_factory(NodeForm, extra=EMPTY_ROWS)


@operator_page("clusters", acts=Right.JOBS)
def cluster_nodes(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        raise Http404
    rows = NodeForms(request.POST) if request.method == "POST" else NodeForms(initial=_declared(cluster))
    error = ""
    preview: list[tuple[str, str]] = []
    if request.method == "POST" and rows.is_valid():
        nodes = [form.node for form in rows if form.cleaned_data and form.node is not None]
        try:
            if request.POST.get("act") == "declare":
                declared_nodes.declare_nodes(cluster=cluster, nodes=nodes)
                messages.success(request, _("Nodes of {name} saved.").format(name=name))
                return redirect("operator_cluster", name)
            preview = _changes(declared_nodes.plan_nodes(cluster, nodes))
        except CapacityError as refusal:
            error = sentence(refusal)
    page = {"cluster": cluster, "error": error, "preview": preview, "rows": rows}
    return render(request, "operator/nodes.html", {"frame": frame, "page": page})


def _declared(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        {name: getattr(node, name) for name in NodeForm.base_fields}
        for node in declared_nodes.nodes_of(cluster)
    ]


def _changes(planned: Declaration) -> list[tuple[str, str]]:
    """Each change as a word and a sentence."""
    changes = [
        *((_("Add"), node.sentence) for node in planned.added),
        *((_("Remove"), node.sentence) for node in planned.removed),
    ]
    return changes or [(_("No change"), _("The declared nodes stay the same."))]
