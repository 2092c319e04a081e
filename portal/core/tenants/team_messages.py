"""What changes of a team and of operators refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "account-inactive": _("The account {email} is closed. Ask your operator to open it again."),
    "account-without-password": _(
        "{email} has an account with rights, and no password yet. Without e-mail, nobody can set one by a link: run "
        "./run manage changepassword {email} first, then invite again."
    ),
    "already-member": _("{email} is a member of {tenant} already: change the role in the list of members."),
    "empty-note": _("Write the note first: it is empty."),
    "invitation-ended": _("This invitation is not valid: it was used or revoked, or it has expired."),
    "invitation-of-another": _(
        "This invitation is for {email}, and you are signed in as {user}. Sign out, then open the link again."
    ),
    "last-admin": _("{email} is the last admin: make somebody else an admin first."),
    "last-owner-leaves": _(
        "You are the last owner of {tenant}: make another member an owner first, then leave."
    ),
    "last-owner-removed": _(
        "{email} is the last owner of {tenant}: make another member an owner first, then remove this one."
    ),
    "last-owner-role": _(
        "{email} is the last owner of {tenant}: make another member an owner first, then change this role."
    ),
    "long-note": _(
        "A note has at most {most} characters, and this one has {length}: shorten it, or write two."
    ),
    "no-account": _("Nobody here has the address {email}."),
    "no-address": _("{email} is no e-mail address: write one such as ann@example.org."),
    "no-mail": _(
        "E-mail is not configured (EMAIL_URL and PORTAL_URL), so nobody can be invited. Ask your operator to add "
        "the person."
    ),
    "no-member": _("That person is not a member of {tenant} any more. Reload the page."),
    "no-owner": _("Only an owner transfers the ownership."),
    "no-reason": _("Say why you look at the tenant: it reads the reason in its history."),
    "no-role": _("There is no role {role}: choose among {roles}."),
    "not-your-note": _("The note is by {author}: only they and admins remove it."),
    "sign-in-first": _("{email} has an account here: sign in, then open the link again."),
    "too-many-invitations": _(
        "There are {most} open invitations already: revoke those that nobody needs, then invite again."
    ),
    "too-many-mails": _(
        "Too many invitations were mailed: at most {most} an hour, and {each} a day to one address. Try again later."
    ),
    "too-many-users": _(
        "At most {most} scheduler user names of 100 characters: write them with commas between."
    ),
    "transfer-to-oneself": _("You are an owner already: choose another member."),
}
