"""What signing in by an identity provider refuses: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "account-inactive": _("The account {email} is closed. Ask your operator to open it again."),
    "another-link": _(
        "{email} signs in here as somebody else of {provider}. Ask your operator to remove the old link."
    ),
    "domains-missing": _("domains is missing: write the e-mail domains that {provider} speaks for."),
    "no-keys": _("{why}"),
    "no-place": _(
        "{provider} knows you, but you belong to no tenant here. Ask an owner of your tenant to invite {email}."
    ),
    "not-asked-again": _(
        "{provider} did not ask again who you are. Sign out there, then prove here once more who you are."
    ),
    "not-for-operators": _("{email} is an operator, and operators do not sign in by {provider} here."),
    "not-its-address": _(
        "{provider} does not speak for addresses such as {email}. Sign in with your password, or ask your operator."
    ),
    "not-verified": _(
        "{provider} does not say that your e-mail address is verified. Verify it there, then sign in again."
    ),
    "secret-again": _(
        "url is another one, and what is kept secret was given for {url}: give client_secret again with it."
    ),
    "unreachable": _("{provider} cannot be reached. Try again later, or sign in with your password."),
    "went-wrong": _("Signing in by {provider} did not work. Begin again here."),
    "was-cancelled": _("You did not sign in at {provider}. Nothing was changed."),
}
