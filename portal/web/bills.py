"""Providers' bills of a rented cluster: previewed, imported, and what was."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.models import CostImport
from billing.reports import bills
from billing.reports.bill_rows import BillError
from billing.rules.money import Money
from clusters.models import Cluster
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame
from portal.web.plan_controls import gpu_models

LARGEST = 64 << 20  # bytes that are read before the page answers
SHOWN = 60
PIECE = 1 << 20


@operator_page("clusters", acts=Right.IMPORTS)
def cluster_bills(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    """The same use case as `import_bill` and `PUT /clusters/{name}/bills/{file}`."""
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        raise Http404("no such cluster")
    form = {"gpu_model": request.POST.get("gpu_model", ""), "where": request.POST.get("where", "")}
    error = ""
    if request.method == "POST":
        preview = request.POST.get("act") == "preview"
        try:
            text = _import(request, cluster, preview=preview)
        except BillError as refusal:
            error = str(refusal)
        else:
            messages.info(request, text)
            if not preview:
                return redirect("operator_bills", name)
    rows = CostImport.objects.filter(cluster=cluster).order_by("-billing_period", "provider", "pk")[:SHOWN]
    page: dict[str, Any] = {"cluster": cluster, "form": form, "error": error}
    page["models"] = gpu_models()
    page["bills"] = [(row, Money.of(row.amount, row.currency)) for row in rows]
    return answer(request, frame, page, whole="operator/bills.html")


def _import(request: HttpRequest, cluster: Cluster, *, preview: bool) -> str:
    """What came of it, in a sentence. Raises BillError."""
    file = request.FILES.get("file")
    if file is None or not file.size:
        raise BillError(_("Choose a file that is not empty."))
    if file.size > LARGEST:
        raise BillError(_("The file is larger than 64 MiB: import it with the command import_bill."))
    lines = [line.strip() for line in request.POST.get("where", "").replace("\0", "").splitlines()]
    with tempfile.TemporaryDirectory() as folder, acting_as(str(request.user), why=cluster.name):
        imported = bills.import_bills(
            cluster=cluster,
            files=[_stored(file, Path(folder))],
            gpu_model=request.POST.get("gpu_model", "").replace("\0", "").strip(),
            selection=bills.parse_selection(filter(None, lines)),
            moment=datetime.now(UTC).replace(microsecond=0),
            keep=not preview,
        )
    parts = [
        _("{provider} from {day}: {amount} in {count}, {new} new, {gone} gone").format(
            provider=bill.provider,
            day=bill.period.isoformat(),
            amount=say.money(Money.of(bill.amount, bill.currency)),
            count=say.counted(bill.charges, "charge"),
            new=say.whole(bill.new),
            gone=say.whole(bill.gone),
        )
        for bill in imported.bills
    ]
    left_out = _("Left out: taxes {taxes}, rows that were not selected {others}.").format(
        taxes=say.whole(imported.taxes), others=say.whole(imported.others)
    )
    text = f"{'; '.join(parts)}. {left_out}"
    return (
        _("Preview, nothing imported: {result} Choose the file again to import it.").format(result=text)
        if preview
        else text
    )


def _stored(file: UploadedFile[Any], folder: Path) -> Path:
    """Under its own name, which sentences say, as far as that is one."""
    name = Path((file.name or "").replace("\0", "")).name.encode()[:200].decode(errors="ignore")
    path = folder / (name or "bill")
    with path.open("wb") as out:
        out.writelines(file.chunks(PIECE))
    return path
