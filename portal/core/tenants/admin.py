"""People and how they sign in. Tenants, and what depends on what they pay, are in billing's admin."""

from __future__ import annotations

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest

from portal.admin import Recorded, portal_page
from portal.core.audit import acting_as
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import Membership, Role, User
from portal.core.tenants.team import exclude, revoke_invitations_by

admin.site.unregister(Group)  # roles are memberships
admin.site.unregister(EmailAddress)  # a person's address is the person's own field
admin.site.unregister(UserSession)  # whose keys open other people's sessions
admin.site.unregister((SocialAccount, SocialApp, SocialToken))  # providers are ours, links no form's
admin.site.unregister(Authenticator)  # as allauth shows it, its data can be written


def _plain(form: forms.BaseForm) -> str:
    """The address as people sign in with it."""
    return str(form.cleaned_data["email"]).lower()


class NewPerson(AdminUserCreationForm[User]):
    """With a password, or without one: then the person sets it from the sign-in page."""

    class Meta:
        model = User
        fields = ("email",)

    clean_email = _plain


class ChangedPerson(UserChangeForm[User]):
    class Meta(UserChangeForm.Meta):
        model = User
        field_classes: ClassVar[dict[str, Any]] = {}

    clean_email = _plain


@admin.register(User)
class PersonAdmin(UserAdmin[User]):
    list_display = ("email", "first_name", "last_name", "is_active", "operator_role", "last_login")
    list_filter = ("operator_role", "is_active")
    search_fields = ("email", "first_name", "last_name")
    ordering = ("email",)
    add_form = NewPerson
    form = ChangedPerson
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("email", "password", "first_name", "last_name")}),
        ("Operation", {"fields": ("is_active", "operator_role")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """An address that the person no longer has opens nothing: sign-in accepts what allauth keeps as well."""
        with acting_as(str(request.user)):
            super().save_model(request, obj, form, change)
            if change and Right.TENANTS not in rights_of(obj):
                revoke_invitations_by(obj.email)
        EmailAddress.objects.filter(user=obj).exclude(email=obj.email).delete()


@admin.register(Membership)
class MembershipAdmin(Recorded[Membership]):
    view_on_site = portal_page("operator_team", "tenant.slug")
    list_display = ("user", "tenant", "role")
    list_filter = ("role", "tenant")
    list_select_related = ("user", "tenant")
    search_fields = ("user__email", "tenant__slug", "tenant__name")
    ordering = ("tenant__slug", "user__email")
    autocomplete_fields = ("user", "tenant")

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        """A role that is given here stays, whatever an identity provider says, as one that an owner gives."""
        if "role" in form.changed_data:
            obj.through = ""
        super().save_model(request, obj, form, change)
        if obj.role != Role.OWNER:
            revoke_invitations_by(obj.user.email, tenant=obj.tenant)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        revoke_invitations_by(obj.user.email, tenant=obj.tenant)
        exclude(obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        for row in queryset.select_related("user", "tenant"):
            self.delete_model(request, row)


@admin.register(Authenticator)
class AuthenticatorAdmin(admin.ModelAdmin[Authenticator]):
    """Deleted for somebody who has lost it; made and changed by its owner alone."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("user__email", "pk")
    fields = readonly_fields = ("user", "type", "created_at", "last_used_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(SocialAccount)
class SocialAccountAdmin(admin.ModelAdmin[SocialAccount]):
    """Who signs in by which identity provider; deleted, the next sign-in links the verified address again."""

    list_display = ("user", "provider", "uid", "date_joined", "last_login")
    list_filter = ("provider",)
    list_select_related = ("user",)
    search_fields = ("user__email", "uid")
    ordering = ("user__email", "pk")
    fields = readonly_fields = ("user", "provider", "uid", "date_joined", "last_login")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
