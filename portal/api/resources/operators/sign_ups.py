"""Sign-ups: what is asked of people, who waits, and what an operator decides."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog.plans import PlanError
from billing.invoicing.offboarding import ArchiveError
from billing.models import SignUp, SignUpPolicy, SignUpState
from billing.sign_up import policy, requests
from billing.sign_up.policy import TERMS, SignUpError
from billing.wallets.entries import WalletError
from portal.api import identifiers, parameters
from portal.api.bodies import Body
from portal.api.entry_fields import body_of, entry_of
from portal.api.fields import IdField, MinorField, MomentField
from portal.api.resources.operators.endpoint import TENANT, OperatorEndpoint, WritingEndpoint
from portal.config_file.sign_up import SignUpEntry

APPROVED, REFUSED = "approved", "refused"
"""As of approvals of invoices."""


class SignUpSerializer(serializers.ModelSerializer[SignUp]):
    """Somebody asks for a tenant of their own. Until it is `active`, the tenant is on no plan."""

    id = IdField("sgn")
    tenant = serializers.CharField(source="tenant.slug")
    name = serializers.CharField(source="tenant.name")
    country = serializers.CharField(source="tenant.country")
    plan = serializers.CharField(source="plan.name")
    credit = MinorField("credit", help_text="Given to begin with.")
    asked_at = MomentField()
    decided_at = MomentField(allow_null=True)

    class Meta:
        model = SignUp
        fields = (
            *("id", "tenant", "name", "country", "email", "plan", "state", "credit", "asked_at"),
            *("decided_at", "decided_by", "reason"),
        )


class SignUpEndpoint(WritingEndpoint):
    write_scope = "tenants:write"
    serializer = SignUpSerializer
    refusals = (SignUpError, PlanError, WalletError, ArchiveError)

    def rows(self) -> Any:
        return SignUp.objects.select_related("tenant", "plan")

    def row(self, name: str) -> SignUp:
        row: SignUp = self.rows().get(pk=identifiers.read("sgn", name))
        return row


class SignUps(OperatorEndpoint):
    """All sign-ups, the newest first."""

    serializer = SignUpSerializer
    lists = True
    parameters = (
        TENANT,
        parameters.choice("state", [*SignUpState.values], "What it waits for, or how it ended."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = SignUp.objects.select_related("tenant", "plan")
        return self.page(self.narrowed(rows, tenant="tenant__slug", state="state"), order=("-pk",))


class OneSignUp(SignUpEndpoint):
    """One sign-up."""

    write_parameters = ()

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.row(name))


class NewSignUpDecision(Body):
    decision = serializers.ChoiceField(choices=[APPROVED, REFUSED])
    reason = serializers.CharField(
        max_length=500, required=False, allow_blank=True, help_text="Needed to refuse: the person reads it."
    )


class SignUpDecisions(SignUpEndpoint):
    """Approve or refuse a sign-up. The plan begins with the approval; a refusal archives the tenant."""

    request_serializer = NewSignUpDecision
    needs_idempotency = True

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        row, values, moment = self.row(name), self.body(), self.moment.replace(microsecond=0)
        reason = values.get("reason", "")
        with self.by(reason[:200]):
            if values["decision"] == APPROVED:
                row = requests.approve(sign_up=row, by=self.client.name, moment=moment)
            else:
                row = requests.refuse(sign_up=row, by=self.client.name, reason=reason, moment=moment)
        return self.one(row, status=201)


class SignUpPolicyFields(body_of(SignUpEntry)):  # type: ignore[misc]  # its fields are those of the file
    """What is asked of people who sign up. The fields are those of `[sign_up]` in a file for `apply`."""


class OneSignUpPolicy(WritingEndpoint):
    """Whether people sign up by themselves. PUT sets it; what is left out has its default."""

    write_scope = "tenants:write"
    serializer = SignUpPolicyFields
    request_serializer = SignUpPolicyFields
    refusals = (SignUpError,)

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        return {name: getattr(row, name) for name in TERMS}

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.one(policy.get_policy())

    def put(self, request: Any) -> HttpResponse:
        del request
        SignUpPolicy.objects.select_for_update().first()  # which a page changes, too
        self.match(policy.get_policy())
        entry = entry_of(SignUpEntry, self.body(), label="sign_up")
        return self.one(entry.write())
