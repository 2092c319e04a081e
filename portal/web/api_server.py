"""The API server of a Kubernetes cluster, over which its accounts are blocked: entered by operators."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from clusters.api_server_form import ApiServerForm
from clusters.models import ApiServer, Cluster, ClusterKind
from portal.core.tenants.access import Right
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame

GROUPS = (
    (gettext_noop("Address"), "", ("base_url", "unix_socket", "ca", "enabled")),
    (
        gettext_noop("Authentication"),
        gettext_noop(
            "A token of a service account is enough; test_connection prints the rights that it needs."
        ),
        ("new_token", "client_certificate", "new_client_key", "new_headers", "forget"),
    ),
    (gettext_noop("What a block writes"), "", ("queues", "always_resource_quota")),
)


@operator_page("clusters", acts=Right.CLUSTERS)
def api_server(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    """The form; saved, accounts are blocked over it from the next block on."""
    cluster = Cluster.objects.select_related("api_server").filter(name=name).first()
    if cluster is None:
        raise Http404
    if cluster.kind != ClusterKind.PROMETHEUS:
        messages.error(request, _("Only a Kubernetes cluster has an API server."))
        return redirect("operator_cluster", name)
    row = ApiServer.objects.filter(cluster=cluster).first() or ApiServer(cluster=cluster)
    is_new = row.pk is None
    form = ApiServerForm(request.POST or None, instance=row)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(
            request, _("API server saved. Test the connection to see whether its rights suffice.")
        )
        return redirect("operator_cluster", name)
    page = {
        "name": name,
        "new": is_new,
        "listener": _("the API server"),
        "is_api_server": True,
        "form": form,
        "groups": [
            (title, hint, [form[field] for field in names if field in form.fields], False)
            for title, hint, names in GROUPS
        ],
    }
    return render(request, "operator/connection.html", {"frame": frame, "page": page})
