"""Links by which one invoice is seen and paid without signing in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import PaymentLink
from billing.payments import payment_links
from billing.payments.gateway_access import CollectionError
from portal.api import identifiers
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.cursors import Page
from portal.api.fields import IdField, MomentField
from portal.api.parameters import LISTS, Parameter
from portal.api.problems import not_found
from portal.api.resources.invoices import InvoiceEndpoint


class PaymentLinkSerializer(serializers.ModelSerializer[PaymentLink]):
    """A link that is valid. Whoever has its `url` sees and pays the invoice."""

    id = IdField("link")
    invoice = serializers.CharField(source="invoice.number", help_text="Number.")
    url = serializers.CharField(help_text="For whoever pays; without signing in.")
    maker = serializers.CharField(help_text="Who made it; empty: a reminder.")
    created_at = MomentField()
    expires_at = MomentField()

    class Meta:
        model = PaymentLink
        fields = ("id", "invoice", "url", "maker", "created_at", "expires_at")


class LinkFields(Body):
    days = serializers.ChoiceField(choices=payment_links.DAYS, help_text="For how many days it is valid.")


class PaymentLinkEndpoint(InvoiceEndpoint):
    scope = "payments:write"
    serializer = PaymentLinkSerializer
    refusals = (CollectionError,)
    parameters: ClassVar[Sequence[Parameter]] = ()

    def link(self, name: str) -> PaymentLink:
        """Raises ProblemError 404, also for one that has ended."""
        rows = self.of_tenant(PaymentLink.objects.select_related("invoice"))
        rows = rows.filter(revoked_at=None, expires_at__gt=self.moment)
        link: PaymentLink | None = rows.filter(pk=identifiers.read("link", name)).first()
        if link is None:
            raise not_found()
        return self.with_url(link)

    def with_url(self, link: PaymentLink) -> PaymentLink:
        here = self.request.build_absolute_uri(payment_links.path_of(link))
        shown: Any = link
        shown.url = payment_links.url_of(link) or here
        return link


class PaymentLinks(PaymentLinkEndpoint):
    """The valid links of an invoice, the newest first; POST makes one."""

    lists = True
    parameters = LISTS
    request_serializer = LinkFields

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.page(payment_links.open_links(self.invoice(name), self.moment), order=("-pk",))

    def prepared(self, page: Page[Any]) -> list[Any]:
        return [self.with_url(link) for link in page.rows]

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        days = self.body()["days"]
        link = payment_links.make_link(
            invoice=self.invoice(name), days=days, by=self.client.name, moment=self.moment
        )
        return as_json(self.representation(self.with_url(link)), status=201)


class OnePaymentLink(PaymentLinkEndpoint):
    """One link. DELETE revokes it."""

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.link(name))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        PaymentLink.objects.select_for_update().get(pk=self.link(name).pk)
        link = self.link(name)  # as it is behind the lock
        self.match(link)
        payment_links.revoke_link(link=link, by=self.client.name, moment=self.moment)
        return HttpResponse(status=204)
