"""A stand-in for Stripe: strict, stateful, on 127.0.0.1, spoken to by the official client. No money moves.

    with Sandbox(now=datetime(2026, 11, 2, 12, tzinfo=UTC), secret="whsec_test") as sandbox:
        api = stripe.StripeClient(sandbox.key, base_addresses={"api": sandbox.url}, max_network_retries=0)
        ...
        assert sandbox.violations == []

With `now` the clock stands still until a test moves it; without, it follows the machine.

- Time: `clock.advance(days=1)`, `clock.set(moment)`; everything due in between happens in order.
- People, banks, networks: `dashboard` (`dashboard.py`).
- Faults: `faults.drop_answer`, `cut_before`, `server_error`, `rate_limited`, `delay(seconds)` and others; each with
  `on="POST /v1/payment_intents*"`, `times=` and `skip=`; `lift()` removes them.
- Webhooks: `Sandbox(webhook=url, secret=…)` sends them, `webhooks.wait()` waits for it; without an address
  `webhooks.take("shuffled")` returns them. `duplicate`, `lose`, `hold` and others disturb them (`deliveries.py`).
- Results: `objects("charge")`, `requests`.
- `violations`: unknown parameters and endpoints, a POST without an idempotency key of ours, a reused key, another
  API version or mode.
- Restricted keys: `keys.restrict("rk_test_portal", PORTAL_RIGHTS)`, `keys.revoke(key)`.
"""

from portal.dev.stripe_sandbox.errors import ApiError
from portal.dev.stripe_sandbox.keys import PORTAL_RIGHTS
from portal.dev.stripe_sandbox.sandbox import Sandbox

__all__ = ["PORTAL_RIGHTS", "ApiError", "Sandbox"]
