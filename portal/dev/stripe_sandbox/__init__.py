"""A stand-in for Stripe: strict, stateful, on 127.0.0.1, spoken to by the official client. No money moves."""

from portal.dev.stripe_sandbox.errors import ApiError
from portal.dev.stripe_sandbox.keys import PORTAL_RIGHTS
from portal.dev.stripe_sandbox.sandbox import Sandbox

__all__ = ["PORTAL_RIGHTS", "ApiError", "Sandbox"]
