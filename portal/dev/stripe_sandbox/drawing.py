"""The HTML of the sandbox's pages. Complete without scripts; every text is escaped here."""

from __future__ import annotations

from html import escape
from pathlib import Path

from portal.dev.stripe_sandbox.currencies import shown
from portal.dev.stripe_sandbox.errors import Json

STYLE = Path(__file__).with_name("sandbox.css").read_bytes()
HINTS = (
    ("4242 4242 4242 4242", "is paid"),
    ("4000 0025 0000 3155", "asks the bank once, then off session too"),
    ("4000 0027 6000 3184", "asks the bank each time"),
    ("4000 0000 0000 0341", "can be saved, is declined when charged"),
    ("4000 0000 0000 0002", "is declined"),
    ("4000 0000 0000 9995", "has insufficient funds"),
    ("4000 0000 0000 9987", "was lost"),
    ("4000 0000 0000 9979", "was stolen"),
    ("4000 0000 0000 0069", "has expired"),
    ("4000 0000 0000 5126", "is paid, its refund fails later"),
    ("4000 0000 0000 0259", "is paid, and disputed"),
)
ACCOUNT_HINTS = (
    ("DE89 3704 0044 0532 0130 00", "settles after 5 seconds"),
    ("DE08 3704 0044 0532 0130 03", "settles after 3 minutes"),
    ("DE62 3704 0044 0532 0130 01", "fails after 5 seconds"),
    ("DE35 3704 0044 0532 0130 02", "settles, and is disputed"),
)


def page(title: str, body: str, *, one: bool = False) -> bytes:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(title)} · Sandbox</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/sandbox.css">
</head>
<body>
<div class="banner" role="note">Sandbox – no money moves</div>
<main{' class="one"' if one else ""}>
{body}
</main>
</body>
</html>
""".encode()


def notice(title: str, text: str, *, link: tuple[str, str] | None = None) -> bytes:
    """A page that says one thing and perhaps leads on."""
    on = f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>' if link else ""
    return page(
        title, f'<section class="card"><h1>{escape(title)}</h1><p>{escape(text)}</p>{on}</section>', one=True
    )


def checkout(session: Json, items: list[Json], saved: list[Json], *, refused: str | None) -> bytes:
    """Where a person pays, or saves a card."""
    setup = session["mode"] == "setup"
    button = "Save card" if setup else f"Pay {shown(session['amount_total'], session['currency'])}"
    alert = f'<p class="refused" role="alert">{escape(refused)}</p>' if refused else ""
    forms = card_form(session, button) if "card" in session["payment_method_types"] else ""
    if "sepa_debit" in session["payment_method_types"]:
        forms += account_form(session, "Save account" if setup else button)
    if saved and not setup:
        forms = saved_form(saved, button) + forms
    return page(
        "Checkout", f"<div>{summary(session, items)}</div>\n<div>{alert}{forms}{hints(session)}</div>"
    )


def summary(session: Json, items: list[Json]) -> str:
    back = session["cancel_url"]
    link = f'<p><a href="{escape(back)}">← Back without paying</a></p>' if back else ""
    if session["mode"] == "setup":
        about = "The card is saved for later payments. Nothing is charged now."
        return f'{link}<p class="soft">Save a payment method</p><h1>Add a card</h1><p>{about}</p>'
    currency = session["currency"]
    rows = "".join(
        f"<tr><th scope='row'>{escape(item['description'])}{quantity(item)}</th>"
        f"<td>{shown(item['amount_total'], currency)}</td></tr>"
        for item in items
    )
    total = shown(session["amount_total"], currency)
    rows += f'<tr class="sum"><th scope="row">Total</th><td>{total}</td></tr>'
    return f'{link}<p class="soft">To pay</p><h1>{total}</h1><table>{rows}</table>'


def quantity(item: Json) -> str:
    return f" × {item['quantity']}" if item["quantity"] > 1 else ""


def person(session: Json) -> str:
    if session["customer"]:
        return ""
    email = escape(session["customer_email"] or "")
    return f'<label>E-mail<input name="email" type="email" required value="{email}"></label>'


def card_form(session: Json, button: str) -> str:
    return f"""
<form class="card" method="post" autocomplete="off">
<h2>Card</h2>
<input type="hidden" name="method" value="card">
{person(session)}
<label>Card number<input name="number" inputmode="numeric" required placeholder="4242 4242 4242 4242"></label>
<div class="pair">
<label>Expiry<input name="expiry" required placeholder="MM / YY"></label>
<label>CVC<input name="cvc" inputmode="numeric" required placeholder="123" pattern="\\d{{3,4}}"></label>
</div>
<label>Name on card<input name="name" required></label>
{save_box(session)}<button>{escape(button)}</button>
</form>"""


def save_box(session: Json) -> str:
    options = session["saved_payment_method_options"] or {}
    if options.get("payment_method_save") != "enabled":
        return ""
    return '<label class="choice"><input type="checkbox" name="save"> Save this card for later payments</label>\n'


def account_form(session: Json, button: str) -> str:
    return f"""
<details class="card"><summary>SEPA direct debit</summary>
<form method="post" autocomplete="off">
<input type="hidden" name="method" value="sepa_debit">
{person(session)}
<label>IBAN<input name="iban" required placeholder="DE89 3704 0044 0532 0130 00"></label>
<label>Account holder<input name="name" required></label>
<button>{escape(button)}</button>
</form></details>"""


def saved_form(saved: list[Json], button: str) -> str:
    rows = "".join(
        f'<label class="choice"><input type="radio" name="saved" value="{method["id"]}"{" checked" * (not number)}> '
        f"{escape(name_of(method))}</label>"
        for number, method in enumerate(saved)
    )
    return f"""
<form class="card" method="post">
<h2>Saved</h2>
<input type="hidden" name="method" value="saved">
{rows}
<button>{escape(button)}</button>
</form>"""


def name_of(method: Json) -> str:
    shown = method[method["type"]]
    if method["type"] == "card":
        return f"{shown['brand'].title()} •••• {shown['last4']}, expires {shown['exp_month']:02d}/{shown['exp_year']}"
    return f"SEPA direct debit •••• {shown['last4']}"


def hints(session: Json) -> str:
    rows = "".join(f"<tr><td><code>{number}</code></td><td>{text}</td></tr>" for number, text in HINTS)
    more = ""
    if "sepa_debit" in session["payment_method_types"]:
        more = "".join(
            f"<tr><td><code>{number}</code></td><td>{text}</td></tr>" for number, text in ACCOUNT_HINTS
        )
    return f"""
<details class="card"><summary>Test cards</summary>
<p class="soft">Any expiry in the future and any CVC. Cards of people are refused and not kept.</p>
<table>{rows}{more}</table></details>"""


def authentication(about: str) -> bytes:
    """The page of the card's bank."""
    return page(
        "3-D Secure",
        f"""<section class="card"><p class="soft">3-D Secure · your bank</p><h1>Is it you?</h1>
<p>{escape(about)}</p>
<form method="post">
<button name="outcome" value="complete">Complete</button>
<button name="outcome" value="fail" class="second">Fail</button>
</form></section>""",
        one=True,
    )
