"""Where Stripe tells of what happened: verified, stored once, answered at once, applied by a worker."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from billing.payments import gateway_access, webhook_events
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import SignatureError
from portal.queues import queue_of

MOST = 1 << 20  # bytes of a notification
PATIENCE = 2  # seconds with a broker that does not answer


@csrf_exempt
@require_POST
def hook(request: HttpRequest) -> HttpResponse:
    """200 for what is stored, known, not ours or not understood; 400, nothing kept, for what Stripe did not sign."""
    if not gateway_access.is_configured() or not settings.STRIPE_WEBHOOK_SECRETS:
        return _response(404, "No webhook is set up here: set STRIPE_WEBHOOK_SECRETS.")
    if len(request.body) > MOST:
        return _response(413, "That is no notification of Stripe.")
    signature = request.headers.get("Stripe-Signature", "")
    try:
        event = gateway_access.get_gateway().verified(
            request.body, signature, settings.STRIPE_WEBHOOK_SECRETS
        )
    except CollectionError as error:
        return _response(503, str(error))  # Stripe tells again
    except (SignatureError, ValueError) as error:
        return _response(
            400, str(error) if isinstance(error, SignatureError) else "That is no notification of Stripe."
        )
    with transaction.atomic():
        if webhook_events.store_event(event, moment=datetime.now(UTC)):
            transaction.on_commit(lambda: _wake(event.id))
    return _response(200, "")


def _wake(event: str) -> None:
    """Only to be quicker: a round applies what no worker was told of.

    By a connection that is tried once: that of the tasks tries again and again, while Stripe waits for its answer.
    """
    # Of all that is served only this speaks to the broker, by a library that takes 8 MiB.
    from kombu import Connection

    from billing.tasks import apply_event

    once = {**settings.CELERY_BROKER_TRANSPORT_OPTIONS, "max_retries": 0, "socket_timeout": PATIENCE}
    try:
        with Connection(settings.CELERY_BROKER_URL, transport_options=once) as broker:
            apply_event.apply_async(
                kwargs={"event_id": event},
                queue=queue_of(
                    "billing.tasks.apply_event"
                ),  # pages do without the application that routes tasks
                retry=False,
                connection=broker,  # type: ignore[call-arg]  # Celery takes it, its types do not tell
            )
    except Exception:  # noqa: BLE001 - the broker is down, in whichever way: the event is stored
        return


def _response(status: int, text: str) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
