"""What workers do for billing. Each takes ids, may run twice, at once, and die anywhere."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from celery import shared_task

from billing.models import CloseRun, GatewayEvent, Invoice
from billing.payments.gateways.base import GatewayError
from billing.rating import stale_clusters
from clusters import pull_schedule
from clusters.models import Cluster, UsageFile
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant

if TYPE_CHECKING:
    from clusters.enforcement_plan import SchedulerPort

SILENCE = timedelta(hours=1)

log = structlog.get_logger("billing.tasks")


def _open_port(cluster: Cluster) -> SchedulerPort:
    from clusters import enforcement_plan  # the door to a scheduler, which only tasks that act on one load

    return enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time()))


def _log_counts(event: str, done: object, *names: str) -> None:
    """What a round did, by these attributes of its tally."""
    log.info(event, **{name: getattr(done, name) for name in names})


@shared_task
def render_document(*, invoice_id: int, **_: object) -> None:
    """Fix the invoice's evidence, keep its PDF and e-invoice as they are sent, and what its pages show of its jobs.

    What is kept already stays.
    """
    # With what it imports 6 MiB, which a worker of other queues does without.
    from billing.documents import issued
    from billing.queries import line_usage

    invoice = Invoice.objects.get(pk=invoice_id)
    line_usage.keep(invoice)
    issued.keep(invoice, moment=datetime.now(UTC).replace(microsecond=0))


@shared_task
def refresh_efficiency(*, snapshot_id: int, **_: object) -> None:
    """Compute what the efficiency page of a large tenant shows of some days; nothing where that is done already."""
    from billing.reports import efficiency_refresh

    efficiency_refresh.refresh(snapshot_id, clock=lambda: datetime.now(UTC))


@shared_task
def rate_accounts(*, account_ids: list[int], after: int | None = None, **former: object) -> None:
    """Rate usage of the accounts again, 10,000 records at a time; meanwhile owners, and `former` ones, do not close."""
    from billing.rating import engine

    if last := engine.rate_slice(account_ids, after):
        outbox.add("billing.tasks.rate_accounts", account_ids=account_ids, after=last, **former)


@shared_task
def rate_tenants(*, tenant_ids: list[int], after: int | None = None, **options: object) -> None:
    """Rate all usage of the tenants again, after a change of what they pay: each by itself, as `rate_accounts`."""
    from billing.rating import engine

    if len(tenant_ids) > 1:
        outbox.add_many("billing.tasks.rate_tenants", [{"tenant_ids": [pk], **options} for pk in tenant_ids])
        return
    if last := engine.rate_slice(engine.accounts_of(Tenant.objects.filter(pk__in=tenant_ids)), after):
        outbox.add("billing.tasks.rate_tenants", tenant_ids=tenant_ids, after=last, **options)


@shared_task
def pull_usage(*, cluster_id: int, **_: object) -> None:
    """Pull the cluster now; nothing where somebody does already. How it went is kept with its connection."""
    from billing.rating import pulls  # the connectors load 5 MiB that whoever only sends this does without

    cluster = Cluster.objects.get(pk=cluster_id)
    pulled = pulls.pull(cluster, moment=datetime.now(UTC).replace(microsecond=0))
    log.info(
        "pulled",
        cluster=cluster.name,
        outcome=pulled.outcome.value,
        passes=pulled.syncs,
        rows=pulled.stored.read,
        new=pulled.stored.new,
        revised=pulled.stored.revised,
        error=pulled.error,
    )


@shared_task
def pull_due(**_: object) -> None:
    """Tell workers which clusters are due, and readers of events which are stale; each is told of once."""
    stale_clusters.record_stale(moment=datetime.now(UTC))
    for cluster_id, every in pull_schedule.claim(moment=datetime.now(UTC)):
        # Of no use once the next one is due: then that one does its work.
        pull_usage.apply_async(kwargs={"cluster_id": cluster_id}, expires=every)


@shared_task
def import_file(*, file_id: int, **_: object) -> None:
    """Import a file that came by the API, or go on; then its cluster's next file waits behind those of others."""
    from billing.rating import file_imports

    if file_imports.import_file(file_id, clock=lambda: datetime.now(UTC).replace(microsecond=0)):
        files_due(cluster_id=UsageFile.objects.get(pk=file_id).cluster_id)


@shared_task
def files_due(*, cluster_id: int | None = None, **_: object) -> None:
    """Tell workers of each cluster's first file that is not imported; one whose worker died is taken up again so."""
    due = UsageFile.objects.filter(ended_at=None).order_by("cluster", "pk").distinct("cluster")
    for file_id in (due.filter(cluster=cluster_id) if cluster_id else due).values_list("pk", flat=True):
        import_file.apply_async(kwargs={"file_id": file_id}, expires=30)


@shared_task
def perform_close(*, run_id: int, **_: object) -> None:
    """Do a close that an operator asked for, or go on with it; nothing where somebody does already."""
    from billing.invoicing import close_runs  # a close sends the tasks of this module

    close_runs.perform_run(run_id, clock=lambda: datetime.now(UTC).replace(microsecond=0))


@shared_task
def closes_due(**_: object) -> None:
    """Tell workers of the closes that are undone; one whose worker died is taken up again so."""
    for run_id in CloseRun.objects.unfinished().order_by("pk").values_list("pk", flat=True):
        perform_close.apply_async(kwargs={"run_id": run_id}, expires=30)


@shared_task
def schedule_closes(**_: object) -> None:
    """Ask for the previews and issues whose day has come; each period once, however many schedulers run."""
    from billing.invoicing import close_schedules

    for run in close_schedules.request_due_runs(moment=datetime.now(UTC).replace(microsecond=0)):
        log.info("close scheduled", month=run.month, kind=run.kind, tenants=run.total)


@shared_task
def book_wallets(**_: object) -> None:
    """Book on wallets what was used since the last time; run again, or by two at once, nothing is booked twice."""
    from billing.wallets import booking

    booking.book_due(moment=datetime.now(UTC).replace(microsecond=0))


@shared_task
def tend_wallets(**_: object) -> None:
    """Give wallets what has come due, and take what has expired; each once, however often it runs."""
    from billing.wallets import grants

    grants.tend(moment=datetime.now(UTC).replace(microsecond=0))


@shared_task
def match_transfers(**_: object) -> None:
    """Match transfers that were taken in and not looked at; run again, or by two at once, nothing is booked twice."""
    from billing.bank_transfers import matching

    matching.match_new(moment=datetime.now(UTC).replace(microsecond=0))


@shared_task
def flag_silent_runs(**_: object) -> None:
    """Flag runs that are pushed and of which nothing came for an hour: they are billed up to their last heartbeat."""
    from billing.rating import pushed_usage

    pushed_usage.flag_silent_runs(silence=SILENCE, moment=datetime.now(UTC))


@shared_task
def forget_passes(**_: object) -> None:
    """Delete old passes that read nothing new; run again, there are none left."""
    pull_schedule.delete_old_pulls()


@shared_task
def prove_a_month(**_: object) -> None:
    """Prove one past month a night, in turn; missed, doubled or killed, the next call does it."""
    from billing.proof import months

    proof = months.prove_next(moment=datetime.now(UTC).replace(microsecond=0))
    if proof is not None:
        tell = log.error if proof.broken else log.info
        tell("month proved", month=str(proof), records=proof.records, broken=proof.broken)


@shared_task
def collect(**_: object) -> None:
    """A round of collecting, where a key is set: finish what was begun, take in what was told, charge what is due."""
    from billing.payments import collection_run, gateway_access  # the gateway's library loads 9 MiB

    if not gateway_access.is_configured():
        return
    try:
        gateway = gateway_access.get_gateway()
    except gateway_access.CollectionError as error:
        log.warning("nothing is collected", why=str(error))
        return
    done = collection_run.run_collection(gateway=gateway, clock=lambda: datetime.now(UTC))
    if done.followed or done.applied or done.charged or done.troubles:
        _log_counts("collected", done, "followed", "applied", "charged", "not_chargeable")


@shared_task
def reconcile_due(**_: object) -> None:
    """Compare the gateway's books with ours where the night's run is due; by whom the clock wakes twice, once."""
    from billing.payments import gateway_access
    from billing.reconciliation import reconciliation_run

    moment = datetime.now(UTC)
    if (
        not gateway_access.is_configured()
        or gateway_access.is_locked_out()
        or not reconciliation_run.is_due(moment=moment)
    ):
        return
    _reconcile(moment, by="each night")


@shared_task
def request_reconciliation(*, by: str, **_: object) -> None:
    """Tell a worker that an operator wants the books compared: the outbox itself may ask no network."""
    reconcile_now.apply_async(kwargs={"by": by}, expires=600)


@shared_task
def reconcile_now(*, by: str, **_: object) -> None:
    """Compare the gateway's books with ours, as an operator asked for; a second call compares again."""
    _reconcile(datetime.now(UTC), by=by)


def _reconcile(moment: datetime, *, by: str) -> None:
    from billing.payments import gateway_access
    from billing.reconciliation import reconciliation_run

    try:
        reconciliation_run.run(gateway=gateway_access.get_gateway(), moment=moment, by=by)
    except (GatewayError, gateway_access.CollectionError) as error:
        log.warning("not reconciled", error=str(error))


@shared_task
def apply_event(*, event_id: str, **_: object) -> None:
    """Take over what the gateway told of; one that cannot be read now is left to the next round."""
    from billing.payments import gateway_access, webhook_events

    event = GatewayEvent.objects.get(pk=event_id)
    try:
        webhook_events.apply_event(event, gateway=gateway_access.get_gateway(), moment=datetime.now(UTC))
    except GatewayError as error:
        log.warning("not applied", what=event.pk, error=str(error))


@shared_task
def dun(**_: object) -> None:
    """A round of dunning; missed, doubled or killed, each notice is written and each suspension made once."""
    from billing.dunning import dunning_run

    done = dunning_run.run_dunning(moment=datetime.now(UTC).replace(microsecond=0))
    if done.written or done.suspended or done.ended or done.hold_reason:
        _log_counts("dunned", done, "late", "written", "suspended", "ended", "hold_reason")


@shared_task
def review_quotas(**_: object) -> None:
    """Look at the quotas of whom something was rated since; missed, doubled or killed, each threshold tells once."""
    from billing.admission import follow
    from billing.quotas import review

    moment = datetime.now(UTC).replace(microsecond=0)
    try:
        over = follow.follow_reservations(moment=moment)
        if over.lapsed:
            log.info("reservations lapsed", lapsed=over.lapsed, ended=over.ended)
    finally:  # one that could not be released keeps no threshold from being told
        done = review.review_quotas(moment=moment)
    if done.crossed or done.cleared:
        _log_counts("quotas reviewed", done, "tenants", "quotas", "crossed", "cleared", "notices")


@shared_task
def send_notices(**_: object) -> None:
    """Send the notices and reports that wait, each at most once, by however many workers."""
    from billing.emails import delivery
    from billing.invoicing import close_reports

    moment = datetime.now(UTC).replace(microsecond=0)
    close_reports.send_reports(moment=moment)
    done = delivery.send_notices(moment=moment)
    if done.sent or done.drafted or done.skipped or done.troubles:
        log.info(
            "posted", sent=done.sent, kept=done.drafted, skipped=done.skipped, troubles=len(done.troubles)
        )


@shared_task
def enforce_blocks(**_: object) -> None:
    """Block and unblock what suspensions and quotas want and is not so yet; what fails is tried again later."""
    from billing.dunning import scheduler_blocks
    from billing.quotas import blocks
    from clusters.block_review import review_blocks

    for of, rows in (("suspensions", scheduler_blocks), ("quotas", blocks)):
        done = rows.enforce_blocks(moment=datetime.now(UTC).replace(microsecond=0), opens=_open_port)
        if done.blocked or done.lifted or done.troubles:
            log.info("blocks", of=of, blocked=done.blocked, lifted=done.lifted, troubles=len(done.troubles))
    review_blocks(moment=datetime.now(UTC).replace(microsecond=0), opens=_open_port)


@shared_task
def enforce_limits(**_: object) -> None:
    """Have schedulers hold what tenants may hold at once; missed, doubled or killed, the next one does the same."""
    from billing.limits import enforcement

    done = enforcement.enforce_limits(moment=datetime.now(UTC).replace(microsecond=0), opens=_open_port)
    if done.set or done.lifted or done.troubles:
        log.info("limits", set=done.set, lifted=done.lifted, troubles=len(done.troubles))


@shared_task
def end_jobs(**_: object) -> None:
    """End the running jobs whose quota had them announced, after a pull of their cluster; what fails is tried again."""
    from billing.quotas import ending_run

    done = ending_run.end_jobs(moment=datetime.now(UTC).replace(microsecond=0), opens=_open_port)
    if done.warned or done.ended or done.troubles:
        log.info("jobs ended", warned=done.warned, ended=done.ended, troubles=len(done.troubles))


@shared_task
def write_job_prices(**_: object) -> None:
    """Write into jobs what they cost, on clusters that are to have it; a missed one changes nothing."""
    from billing.job_prices import run

    moment = datetime.now(UTC).replace(microsecond=0)
    for cluster in run.list_due(moment=moment):
        tally = run.write_job_prices(
            cluster=cluster,
            moment=moment,
            opens=lambda cluster: run.open_comments(cluster, clock=lambda: int(time.time())),
        )
        if tally.written or tally.error:
            log.info("prices of jobs", cluster=cluster.name, written=tally.written, error=tally.error)


@shared_task
def review_waste(**_: object) -> None:
    """Look for jobs that do not use their GPUs; missed, doubled or killed, the next one does the same."""
    from billing.waste import review

    done = review.review_waste(moment=datetime.now(UTC).replace(microsecond=0))
    if done.findings or done.closed:
        log.info("waste reviewed", findings=done.findings, closed=done.closed)


@shared_task
def end_waste(**_: object) -> None:
    """End idle jobs whose grace is over, after a pull of their cluster; what fails is tried again."""
    from billing.waste import end_run

    done = end_run.end_waste(moment=datetime.now(UTC).replace(microsecond=0), opens=_open_port)
    if done.warned or done.ended or done.troubles:
        log.info("idle jobs ended", warned=done.warned, ended=done.ended, troubles=len(done.troubles))


@shared_task
def review_failures(**_: object) -> None:
    """Read the errors of GPUs that are due, and credit by the rules; missed, doubled or killed, the next does it."""
    from billing.service_credits import review

    review.read_and_review(clock=lambda: int(time.time()))


@shared_task
def advance_sign_up(*, tenant_id: int, **_: object) -> None:
    """Go on with a sign-up once its card is saved; again, nothing changes."""
    from billing.models import SignUp
    from billing.sign_up import requests
    from billing.sign_up.policy import SignUpError

    row = SignUp.objects.filter(tenant=tenant_id).first()
    if row is not None:
        with suppress(SignUpError):  # the card is gone again
            requests.go_on(sign_up=row, moment=datetime.now(UTC).replace(microsecond=0))
