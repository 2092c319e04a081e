"""Sign-up in a configuration file, and in the bodies of the API: who may sign up, and what is asked of them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from billing.models import SignUpPolicy
from billing.sign_up import policy
from billing.sign_up.policy import MOST_A_DAY, TERMS, SignUpTerms
from portal.config_file.entries import Entry, Rule, key


class SignUpEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "sign_up"
    open: bool = False
    approval: bool = True
    card: bool = False
    domain_limit: Annotated[int, Rule(lowest=0, highest=MOST_A_DAY)] = 5
    refused_domains: list[str] = key(default_factory=list)

    def write(self) -> SignUpPolicy:
        """Have people sign up so; applied again, nothing changes. Raises SignUpError."""
        return policy.set_policy(terms=SignUpTerms(**{name: getattr(self, name) for name in TERMS}))
