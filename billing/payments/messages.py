"""What is refused about charges, cards, top-ups and refunds: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # what is set up
    "clash-of-accounts": _(
        "Stripe has customers of a portal that is called {names}, and this database does not know whether it is that "
        "one. Set STRIPE_ACCOUNT_LABEL={first} if it was restored or created again, so that nothing is charged twice; "
        "or STRIPE_ACCOUNT_LABEL={new} if it is another portal in the same account."
    ),
    "clash-of-labels": _(
        "This database is {deployment} at Stripe, and STRIPE_ACCOUNT_LABEL says {label}: set it to the former, or use "
        "the database that belongs to it."
    ),
    "clash-of-modes": _(
        "This database has collected in {first} mode, and the key is a {other} one: what was paid in one mode is "
        "nothing in the other. Set a key of the same mode, or use another database."
    ),
    "no-gateway": _(
        "Nothing is collected here yet: set STRIPE_SECRET_KEY, as docs/how-to/go-live-with-stripe.md says."
    ),
    "nothing-can-be-collected": _("Nothing can be collected yet: {reason}"),
    # what holds a charge back
    "amount-above-most": _(
        "What is due is above the largest amount that can be charged at once; ask for a transfer."
    ),
    "amount-below-least": _(
        "What is due is below the smallest amount that can be charged; it waits for a transfer."
    ),
    "automatic-off": _("Automatic payment is turned off."),
    "card-rests": _("The card was refused: it is charged again from {day} on."),
    "charged-back": _("A payment of it was charged back."),
    "credit-balance-first": _("The credit balance pays it first."),
    "disputed": _("A payment of it is disputed at the bank: until that is decided, nothing is charged."),
    "link-days": _("A payment link is valid for {days} days: choose one of these."),
    "method-gone": _("The means of payment cannot be charged any more."),
    "needs-review-first": _(
        "Something that the gateway told of its tenant belongs to nothing yet: people look at it first."
    ),
    "no-method": _("No means of payment is saved that can be charged."),
    "not-payable": _("{invoice} cannot be paid."),
    "nothing-due": _("Nothing is due."),
    "page-is-open": _("A page to pay on is open."),
    "paused": _("Somebody paused it."),
    "payment-under-way": _("A payment is under way."),
    "refund-without-credit-note": _(
        "A refund at the gateway has no credit note: issue one, or keep the balance open."
    ),
    # what somebody asked for
    "form-of-another-amount": _("This form was sent before with another amount: open the wallet again."),
    "form-of-another-invoice": _("This form was sent before for another invoice: open the invoice again."),
    "form-without-key": _("Open the wallet again and send its form again."),
    "invoice-page-is-open": _("Somebody has just opened a page to pay this invoice: use that one."),
    "invoice-payment-under-way": _("A payment of this invoice is under way: wait until it has settled."),
    "more-is-due": _("More is due by now than the page said, and nothing was charged: look at it again."),
    "no-card": _("No card is saved that can be charged: pay with another card."),
    "no-open-invoice": _("No invoice is open that can be paid by card now."),
    "page-cannot-close": _("A page to pay {invoice} is open and cannot be closed now: {reason}"),
    "saved-method-gone": _("{method} cannot be charged any more: save it again, or choose another one."),
    "tenant-archived": _(
        "{tenant} has left, and is archived since {day}: no card is saved and no credit bought for it any more."
    ),
    "too-many-charges": _("{count} payments were asked for within an hour: please try again later."),
    "too-many-links": _("This invoice has {most} payment links: revoke one before you make another."),
    "too-many-pages": _(
        "{count} pages to pay or to save a card on were opened within an hour: please try again later."
    ),
    # top-ups
    "top-up-amount": _("Write an amount above zero."),
    "top-up-bounds": _("That is below the smallest or above the largest amount that can be charged."),
    "top-up-charged": _("This top-up was charged to the card: ask for another one."),
    "top-up-digits": _("That amount cannot be charged to the last digit: choose a rounder one."),
    "top-up-no-card": _("No card is saved that can be charged: pay on the payment page."),
    "top-up-of-tokens": _("This wallet is in tokens, which cannot be bought."),
    "top-up-page-used": _("This page was used or closed: ask for the top-up again."),
    "top-up-threshold": _("The mark is an amount of zero or more."),
    "top-up-unreadable": _("Write an amount of {currency} like 50.00."),
    "top-ups-most": _("The most of a month leaves room for no top-up: raise it, or buy less at once."),
    "too-many-top-ups": _("{count} top-ups were charged to cards within an hour: please try again later."),
    # refunds
    "credit-note-not-issued": _("{document} is not issued."),
    "no-credit-note": _("{document} is no credit note: money is given back below one."),
    "nothing-owed": _("Nothing of {invoice} is owed to its tenant, or it is on its way already."),
    "nothing-to-give-back": _(
        "Nothing that was paid through the gateway is to be given back for {document}."
    ),
    "nothing-to-refund": _(
        "Nothing of {invoice} can be refunded to a card: transfer the money and record that."
    ),
    # what people decide
    "attempt-has-charge": _(
        "The gateway has {charge} of it: refund or cancel it there, and it ends automatically."
    ),
    "attempt-not-in-review": _("{attempt} does not need review."),
    "comparison-empty": _("There is nothing between that beginning and that end: choose a later --until."),
    "comparison-runs": _("The books are being compared already: wait until that run has ended."),
    "event-not-in-review": _("{event} does not need review."),
    "note-missing": _("Enter a note."),
    "open-balance-without-reason": _("Enter a reason: why the balance stays open."),
    "refund-resolved": _("The {refund} was already dealt with."),
    "settled-without-reason": _("Say what was done: the reason is kept with it."),
    "unpaid-without-reason": _("Say how you know: the reason is kept with it."),
    # what belongs to nothing here
    "unmatched-amount": _("{thing} {id} is over {amount} there, and not over what was asked for here."),
    "unmatched-charge": _("{reason}"),
    "unmatched-currency": _("{thing} {id} is in {currency}, its payment in {other}."),
    "unmatched-document": _(
        "{charge} over {amount} {currency} is for {document}, which is not known here: give it back, or record it by "
        "hand."
    ),
    "unmatched-rival": _(
        "{charge} asks for what another payment under way asks for: wait until that has ended, or give one of them "
        "back."
    ),
    "unmatched-second": _("{charge} is a second charge of what {other} charges."),
    "unmatched-value": _("{thing} {id}: {reason}"),
}
