"""Invitations of people into a tenant, as the team page makes them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from portal.api import identifiers, parameters
from portal.api.bodies import Body
from portal.api.fields import IdField, MomentField
from portal.api.problems import not_found
from portal.api.resources.operators.endpoint import WritingEndpoint, tenant_of
from portal.core.tenants import invitations
from portal.core.tenants.models import Invitation, Role
from portal.core.tenants.team import TeamError


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    """Somebody is asked into a tenant by e-mail. The link is in the mail alone."""

    id = IdField("ivt")
    created_at = MomentField()
    expires_at = MomentField()

    class Meta:
        model = Invitation
        fields = ("id", "email", "role", "inviter", "created_at", "expires_at")


class InvitationFields(Body):
    email = serializers.CharField(max_length=254)
    role = serializers.ChoiceField(choices=[*Role.values])


class Invitations(WritingEndpoint):
    """The open invitations of a tenant. POST mails one; posted again, the link is a new one."""

    write_scope = "tenants:write"
    serializer = InvitationSerializer
    request_serializer = InvitationFields
    lists = True
    parameters = parameters.LISTS
    refusals = (TeamError,)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.page(invitations.open_invitations(tenant_of(name)), order=("email", "pk"))

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        values = self.body()
        row = invitations.invite(
            tenant=tenant_of(name),
            email=values["email"],
            role=Role(values["role"]),
            by=self.client.key.maker.email,
            moment=self.moment,
        )
        return self.one(row, status=201)


class OneInvitation(WritingEndpoint):
    """One open invitation. DELETE revokes it: its link accepts nothing."""

    write_scope = "tenants:write"
    serializer = InvitationSerializer
    refusals = (TeamError,)

    def row(self, name: str, invitation: str) -> Invitation:
        rows = invitations.open_invitations(tenant_of(name))
        row = rows.filter(pk=identifiers.read("ivt", invitation)).first()
        if row is None:
            raise not_found()
        return row

    def get(self, request: Any, name: str, invitation: str) -> HttpResponse:
        del request
        return self.one(self.row(name, invitation))

    def delete(self, request: Any, name: str, invitation: str) -> HttpResponse:
        del request
        Invitation.objects.select_for_update().filter(pk=self.row(name, invitation).pk).first()
        row = self.row(name, invitation)
        self.match(row)
        invitations.revoke(invitation=row, moment=self.moment)
        return HttpResponse(status=204)
