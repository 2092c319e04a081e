"""What blocks of a debtor's accounts refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "other-tenants-below": _(
        "Below {account} lies {below} of {tenant}, which would be blocked too: block what is to be blocked by hand."
    ),
}
