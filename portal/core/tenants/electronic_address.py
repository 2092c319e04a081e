"""Where a party takes e-invoices (BT-34 and BT-49), and how its buyer routes them (BT-10)."""

from __future__ import annotations

import re

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from portal.excerpt import quoted

BY_EMAIL = "EM"
_LISTED = """
0002 0007 0009 0037 0060 0088 0096 0097 0106 0130 0135 0142 0147 0151 0154 0158 0170 0177 0183 0184 0188 0190 0191
0192 0193 0194 0195 0196 0198 0199 0200 0201 0202 0203 0204 0205 0208 0209 0210 0211 0212 0213 0215 0216 0217 0218
0219 0220 0221 0225 0230 0235 0240 0242 0244 0245 0246 0248 9910 9913 9914 9915 9918 9919 9920 9922 9923 9924 9925
9926 9927 9928 9929 9930 9931 9932 9933 9934 9935 9936 9937 9938 9939 9940 9941 9942 9943 9944 9945 9946 9947 9948
9949 9950 9951 9952 9953 9957 9959 AN AQ AS AU EM
"""
SCHEMES = frozenset(_LISTED.split())
"""The code list EAS of the European Commission, which EN 16931 names."""

_LEITWEG_ID = re.compile(r"(0[1-9]|1[0-6]|99)[0-9]{0,10}-[0-9A-Z]{1,30}-[0-9]{2}", re.IGNORECASE)


def parted(address: str, email: str) -> tuple[str, str]:
    """Scheme and identifier of `0204:991-01234-44`; of the e-mail address where there is no other."""
    scheme, _colon, identifier = address.partition(":") if address else (BY_EMAIL, "", email)
    return scheme, identifier


def electronic_address(text: str) -> None:
    """Refuse what is no scheme of the list, a colon, and an identifier without blanks."""
    scheme, _colon, identifier = text.partition(":")
    if scheme not in SCHEMES or not re.fullmatch(r"\S{1,90}", identifier):
        raise ValidationError(
            _(
                "{text} is no electronic address: write its scheme of the list EAS, a colon and the identifier, such "
                "as 0204:991-01234-44 or 9930:DE811234565."
            ).format(text=quoted(text))
        )


def buyer_reference(text: str) -> None:
    """Refuse a Leitweg-ID with a mistake in it; whatever is none is the buyer's own affair."""
    from stdnum.de import leitweg  # loads more than a megabyte of countries, which only forms need

    if _LEITWEG_ID.fullmatch(text.strip()) and not leitweg.is_valid(text):
        raise ValidationError(
            _(
                "{text} is written as a Leitweg-ID, and its check digits do not fit: compare it with the one that "
                "the buyer was assigned."
            ).format(text=quoted(text))
        )
