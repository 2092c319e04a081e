"""The form that resets a cluster's watermark, with a preview of what is read again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _

from clusters import watermark
from clusters.models import Cluster
from clusters.watermark import WatermarkError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.days import check_day
from portal.sentences import sentence
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame

WRITTEN = "%Y-%m-%dT%H:%M"


class ResetForm(forms.Form):
    """`to` in UTC; blank: to none."""

    to = forms.DateTimeField(
        label=_("Data through (UTC)"),
        required=False,
        input_formats=[WRITTEN, "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(format=WRITTEN, attrs={"type": "datetime-local"}),
        validators=[check_day],
        help_text=_("All usage after this is read again. Blank = from the first usage."),
    )
    why = forms.CharField(label=_("Reason"), max_length=500, help_text=_("Shown in the audit history."))


@operator_page("clusters", acts=Right.CLUSTERS)
def reset_watermark(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        raise Http404
    now = datetime.now(UTC).replace(microsecond=0)
    proposed = watermark.proposed(cluster, moment=now)
    form = ResetForm(request.POST or None, initial={"to": proposed})
    error = preview = ""
    if request.method == "POST" and form.is_valid():
        values: dict[str, Any] = form.cleaned_data
        try:
            if request.POST.get("act") == "reset":
                with acting_as(why=values["why"]):
                    done = watermark.reset(cluster=cluster, to=values["to"], moment=now)
                messages.success(request, done.sentence)
                return redirect("operator_cluster", name)
            preview = watermark.plan_reset(cluster=cluster, to=values["to"], moment=now).sentence
        except WatermarkError as refusal:
            error = sentence(refusal)
    ahead = watermark.ahead(name, cluster.complete_through, moment=now)
    page = {
        "name": name,
        "warning": ahead.fact if ahead else "",
        "error": error,
        "preview": preview,
        "form": form,
    }
    return render(request, "operator/watermark.html", {"frame": frame, "page": page})
