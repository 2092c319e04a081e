"""What is refused about bank statements and their transfers: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    # files
    "camt-balance-missing": _(
        "Statement {name} has no balance {kind}: without it, it cannot be told to be whole. Ask the bank for one that "
        "has it, or have it read without this check (import_statement --unchecked)."
    ),
    "camt-currency": _("Statement {name} is in {currency}, which is no currency."),
    "camt-doctype": _("The file has a document type, which no bank statement has: it is not read."),
    "camt-empty": _("There is no statement in this file."),
    "camt-entry": _("Statement {name}: {reason}"),
    "camt-other-kind": _("This is {what}; what is booked is told by camt.053, versions 02 to 13."),
    "camt-other-xml": _("This is no bank statement in camt.053: ask the bank for one, or send CSV."),
    "camt-sums": _(
        "Statement {name} does not add up: it opens with {opening}, its entries come to {moved}, and it closes with "
        "{closing}. Nothing of it is taken in: ask the bank for it again."
    ),
    "camt-unreadable": _("The file is no XML that can be read: {reason}."),
    "camt-without-account": _("Statement {name} does not say of which account it is."),
    "csv-account": _("Say of which account the file is: CSV does not."),
    "csv-charset": _("The file is no text in UTF-8, UTF-16 or Windows-1252: save it as CSV in UTF-8."),
    "csv-column-twice": _("The column {column} is there twice: take the one out that says something else."),
    "csv-column-unknown": _(
        "It is not known what the column {column} means, where {cell} stands; it might say that money did not come. "
        "Say it with --column 'NAME=ignore', or what it is in the place of 'ignore'; or take the column out of the "
        "file."
    ),
    "csv-day-order": _(
        "Whether the day or the month stands first in {day} is not certain: say it with --dates dmy or --dates mdy."
    ),
    "csv-decimals-mixed": _(
        "Some amounts have a decimal comma and some a decimal point: export the file in one language."
    ),
    "csv-decimals-unsure": _(
        "1.234 may be a thousand or one: say with --decimal which sign stands before cents."
    ),
    "csv-direction": _(
        "Whether {word} says that money came or went is not known: say it with --word '{text}=credit' or '…=debit'."
    ),
    "csv-header": _(
        "No line of the file is a header with the columns 'booked_on' and 'amount', or with money in and money out: "
        "docs/how-to/bank-transfers.md lists the columns, and --column 'NAME=amount' says what another one means."
    ),
    "csv-line": _("Line {line} is no CSV that can be read: {reason}."),
    "csv-meaning": _("A column {column} cannot mean {meaning}; it is one of {allowed}."),
    "csv-rows": _("There are more than {most:,} rows: cut the file into shorter periods."),
    "csv-state": _(
        "The state {word} is not known: say with --word '{text}=booked', '…=pending' or '…=failed' what it means, or "
        "with --column 'NAME=ignore' that its column is none of states."
    ),
    "csv-text-missing": _(
        "No column is known to hold what the payer wrote, without which every reference is lost: say which one with "
        "--column 'NAME=text'."
    ),
    "csv-word": _("A word cannot mean {meaning}; it is one of {allowed}."),
    "file-missing": _("Choose a file: a bank statement in camt.053 or CSV."),
    "file-too-large": _("The file is larger than {most} MiB. Export shorter periods."),
    "option-form": _("A column or a word is given as NAME=MEANING, not as {text}."),
    "other-account": _(
        "This is a statement of {accounts}, and {account} is asked for: if that account is yours too, say so by giving "
        "it."
    ),
    "other-account-than-invoices": _(
        "This is a statement of {accounts}, and invoices ask to pay to {account}: if that account is yours too, say so "
        "by giving it."
    ),
    # what people decide
    "already-decided": _("Somebody decided on this transfer already. It is “{state}” now: look at it again."),
    "decided-meanwhile": _("Somebody has just decided on this transfer: look at it again."),
    "ignored-without-reason": _("Say why it is set aside: the reason is kept with it."),
    "left-over": _("{amount} {currency} are left over: say whose credit they are."),
    "no-invoice": _("There is no issued invoice {number}."),
    "no-tenant": _("There is no tenant {tenant}."),
    "nothing-chosen": _("Say which invoices it pays, or whose credit it is."),
    "nothing-due": _("Nothing is due of {invoice}: leave it out."),
    "nothing-left": _("Nothing is left of the transfer for {invoice}: leave it out."),
    "other-amount": _("They are not over the same amount of the same account."),
    "other-currency": _("{invoice} is in {currency}, the transfer in {other}."),
    "outgoing": _("This money left the account: say which transfer it takes back, or set it aside."),
    "refused": _("{reason}"),
    "returned-already": _("That transfer went back already."),
    "settled-already": _("It is settled already."),
    "settled-without-reason": _("Say what was done: the reason is kept with it."),
    "taken-back-without-reason": _("Say why it is taken back: the reason is kept with it."),
}
