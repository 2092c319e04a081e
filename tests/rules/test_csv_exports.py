"""CSV statements as banks export them: what came, what went, and what is not certain to be either."""

from __future__ import annotations

from typing import Any

import pytest

from billing.bank_transfers import csv_statement
from billing.bank_transfers.entities import ReadOptions

IBAN = "DE89370400440532013000"
INVOICE = "INV-2026-0001"

Row = tuple[int, str, str, str, str]  # minor units, currency, day, other side, what they wrote


def read(text: str, **options: Any) -> list[Row]:
    statement = csv_statement.read_csv(text.encode(), ReadOptions(account=IBAN, **options))
    assert statement.bad == ()
    return [
        (entry.amount, entry.currency, str(entry.booked_on), entry.payer, entry.text)
        for entry in statement.entries
    ]


CAME = (5000, "EUR", "2026-04-08", "Vision Lab", INVOICE)
WENT = (-1250, "EUR", "2026-04-09", "Shop", "Order 7")

EXPORTS: dict[str, tuple[str, dict[str, str]]] = {
    "DKB": (
        (
            "Girokonto;DE02\n\n"
            "Buchungsdatum;Wertstellung;Status;Zahlungspflichtige*r;Zahlungsempfänger*in;Verwendungszweck;Umsatztyp;IBAN;"
            "Betrag (€);Gläubiger-ID;Mandatsreferenz;Kundenreferenz\n"
            f"08.04.26;08.04.26;Gebucht;Vision Lab;Op;{INVOICE};Eingang;DE75;50,00;;;\n"
            "09.04.26;09.04.26;Gebucht;Op;Shop;Order 7;Ausgang;DE02;-12,50;;;\n"
        ),
        {},
    ),
    "ING": (
        (
            "Buchung;Wertstellungsdatum;Auftraggeber/Empfänger;Buchungstext;Verwendungszweck;Saldo;Währung;Betrag;Währung\n"
            f"08.04.2026;08.04.2026;Vision Lab;Gutschrift;{INVOICE};1.050,00;EUR;50,00;EUR\n"
            "09.04.2026;09.04.2026;Shop;Überweisung;Order 7;1.037,50;EUR;-12,50;EUR\n"
        ),
        {},
    ),
    "PayPal": (
        (
            '"Date","Time","TimeZone","Name","Type","Status","Currency","Gross","Fee","Net","From Email Address",'
            '"Transaction ID","Address Status","Subject","Balance Impact"\n'
            f'"04/08/2026","10:00:00","PDT","Vision Lab","Payment","Completed","EUR","50.00","-1.75","48.25",'
            f'"ann@lab","1AB","Confirmed","{INVOICE}","Credit"\n'
            '"04/09/2026","10:00:00","PDT","Shop","Payment","Completed","EUR","-12.50","0.00","-12.50",'
            '"op@x","2AB","","Order 7","Debit"\n'
        ),
        {"dates": "mdy"},
    ),
    "VR bank": (
        (
            "Bezeichnung Auftragskonto;IBAN Auftragskonto;BIC Auftragskonto;Bankname Auftragskonto;Buchungstag;"
            "Valutadatum;Name Zahlungsbeteiligter;IBAN Zahlungsbeteiligter;BIC (SWIFT-Code) Zahlungsbeteiligter;"
            "Buchungstext;Verwendungszweck;Betrag;Waehrung;Saldo nach Buchung;Bemerkung;Gekennzeichneter Umsatz;"
            "Glaeubiger ID;Mandatsreferenz\n"
            f"Konto;{IBAN};GENODE;VR;08.04.2026;08.04.2026;Vision Lab;DE75;X;GUTSCHRIFT;{INVOICE};50,00;EUR;1,00;;;;\n"
            f"Konto;{IBAN};GENODE;VR;09.04.2026;09.04.2026;Shop;DE02;X;Basislastschrift;Order 7;-12,50;EUR;1,00;;;;\n"
        ),
        {},
    ),
    "VR bank of old, with S and H below no name": (
        (
            "Buchungstag;Valuta;Auftraggeber/Zahlungsempfänger;Konto-Nr.;IBAN;BLZ;BIC;Vorgang/Verwendungszweck;"
            "Kundenreferenz;Währung;Umsatz; \n"
            f"08.04.2026;08.04.2026;Vision Lab;;DE75;;;{INVOICE};;EUR;50,00;H\n"
            "09.04.2026;09.04.2026;Shop;;DE02;;;Order 7;;EUR;12,50;S\n"
            "08.04.2026;;;;;;;;Anfangssaldo;EUR;1.000,00;H\n"
            "09.04.2026;;;;;;;;Endsaldo;EUR;1.037,50;H\n"
        ),
        {},
    ),
    "GLS of old": (
        (
            "Kontonummer;Buchungstag;Wertstellung;Auftraggeber/Empfänger;Buchungstext;VWZ1;VWZ2;Betrag;Kontostand;Währung\n"
            f"123456;08.04.2026;08.04.2026;Vision Lab;Gutschrift;{INVOICE};;50,00;1050,00;EUR\n"
            "123456;09.04.2026;09.04.2026;Shop;Lastschrift;Order 7;;-12,50;1037,50;EUR\n"
        ),
        {},
    ),
    "Sparda": (
        (
            "Buchungstag;Wertstellungstag;Gegeniban;Name Gegenkonto;Verwendungszweck;Umsatz;Währung\n"
            f"08.04.2026;08.04.2026;DE75;Vision Lab;{INVOICE};50,00;EUR\n"
            "09.04.2026;09.04.2026;DE02;Shop;Order 7;-12,50;EUR\n"
        ),
        {},
    ),
    "Sparkasse": (
        (
            "Auftragskonto;Buchungstag;Valutadatum;Buchungstext;Verwendungszweck;Glaeubiger ID;Mandatsreferenz;"
            "Kundenreferenz (End-to-End);Sammlerreferenz;Beguenstigter/Zahlungspflichtiger;Kontonummer/IBAN;"
            "BIC (SWIFT-Code);Betrag;Waehrung;Info\n"
            f"{IBAN};08.04.26;08.04.26;GUTSCHR. UEBERWEISUNG;{INVOICE};;;;;Vision Lab;DE75;X;50,00;EUR;Umsatz gebucht\n"
            f"{IBAN};09.04.26;09.04.26;FOLGELASTSCHRIFT;Order 7;;;;;Shop;DE02;X;-12,50;EUR;Umsatz gebucht\n"
        ),
        {},
    ),
    "Deutsche Bank, in two columns": (
        (
            "Buchungstag;Wert;Umsatzart;Begünstigter / Auftraggeber;Verwendungszweck;IBAN / Kontonummer;"
            "BIC;Kundenreferenz;Mandatsreferenz;Gläubiger ID;Fremde Gebühren;Betrag;Soll;Haben;Währung\n"
            f"08.04.2026;08.04.2026;SEPA;Vision Lab;{INVOICE};DE75;X;;;;;;;50,00;EUR\n"
            "09.04.2026;09.04.2026;SEPA;Shop;Order 7;DE02;X;;;;;;-12,50;;EUR\n"
        ),
        {},
    ),
    "Revolut": (
        (
            "Type,Product,Started Date,Completed Date,Description,Payer,Amount,Fee,Currency,State,Balance\n"
            f"TOPUP,Current,2026-04-08 09:00:00,2026-04-08 10:11:12,{INVOICE},Vision Lab,50.00,0,EUR,COMPLETED,50\n"
            "CARD,Current,2026-04-09 09:00:00,2026-04-09 10:11:12,Order 7,Shop,-12.50,0.00,EUR,COMPLETED,37.50\n"
        ),
        {},
    ),
    "Wise": (
        (
            "TransferWise ID,Date,Amount,Currency,Description,Payer Name,Payee Name,Transaction Type\n"
            f"T-1,08-04-2026,50.00,EUR,{INVOICE},Vision Lab,,CREDIT\n"
            "T-2,09-04-2026,-12.50,EUR,Order 7,,Shop,DEBIT\n"
        ),
        {"dates": "dmy"},
    ),
    "N26": (
        (
            '"Booking Date","Value Date","Partner Name","Partner Iban",Type,"Payment Reference","Account Name",'
            '"Amount (EUR)","Original Amount","Original Currency","Exchange Rate"\n'
            f'2026-04-08,2026-04-08,"Vision Lab",DE75,"Credit Transfer","{INVOICE}","Main",50.00,,,\n'
            '2026-04-09,2026-04-09,Shop,DE02,"Debit Transfer","Order 7","Main",-12.50,,,\n'
        ),
        {},
    ),
    "ING of the Netherlands": (
        (
            '"Date","Name / Description","Account","Counterparty","Code","Debit/credit","Amount (EUR)",'
            '"Transaction type","Notifications"\n'
            f'"20260408","Vision Lab","{IBAN}","DE75","OV","Credit","50,00","Transfer","{INVOICE}"\n'
            f'"20260409","Shop","{IBAN}","DE02","BA","Debit","12,50","Payment terminal","Order 7"\n'
        ),
        {},
    ),
    "ING of the Netherlands, in Dutch": (
        (
            "Datum;Naam / Omschrijving;Rekening;Tegenrekening;Code;Af Bij;Bedrag (EUR);Mutatiesoort;Mededelingen\n"
            f"20260408;Vision Lab;{IBAN};DE75;OV;Bij;50,00;Overschrijving;{INVOICE}\n"
            f"20260409;Shop;{IBAN};DE02;BA;Af;12,50;Betaalautomaat;Order 7\n"
        ),
        {},
    ),
    "Spanish": (
        (
            "Fecha operación;Fecha valor;Ordenante;Concepto;Importe;Divisa;Saldo\n"
            f"08/04/2026;08/04/2026;Vision Lab;{INVOICE};50,00;EUR;1.050,00\n"
            "09/04/2026;09/04/2026;Shop;Order 7;-12,50;EUR;1.037,50\n"
        ),
        {"dates": "dmy"},
    ),
    "Capital One, whose kind says the direction": (
        (
            "Account Number,Transaction Description,Transaction Date,Transaction Type,Transaction Amount,Balance,Name\n"
            f"1234,{INVOICE},04/08/26,Credit,50.00,1050.00,Vision Lab\n"
            "1234,Order 7,04/09/26,Debit,12.50,1037.50,Shop\n"
        ),
        {"dates": "mdy", "currency": "EUR"},
    ),
}


@pytest.mark.parametrize("bank", EXPORTS)
def test_what_came_and_what_went_is_read_from_the_exports_of_banks(bank: str) -> None:
    text, options = EXPORTS[bank]
    assert read(text, **options) == [CAME, WENT]


NAMELESS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Commerzbank",
        (
            "Buchungstag;Wertstellung;Umsatzart;Buchungstext;Betrag;Währung;IBAN Auftraggeberkonto;Kategorie\n"
            f"08.04.2026;08.04.2026;Gutschrift;{INVOICE};50,00;EUR;{IBAN};Sonstiges\n"
            f"09.04.2026;09.04.2026;Lastschrift;Order 7;-12,50;EUR;{IBAN};Einkauf\n"
        ),
        {},
    ),
    (
        "comdirect",
        (
            "Buchungstag;Wertstellung (Valuta);Vorgang;Buchungstext;Umsatz in EUR\n"
            f"08.04.2026;08.04.2026;Übertrag;{INVOICE};50,00\n09.04.2026;09.04.2026;Lastschrift;Order 7;-12,50\n"
        ),
        {},
    ),
    (
        "French",
        (
            "Date;Date de valeur;Libellé;Débit euros;Crédit euros\n"
            f"08/04/2026;08/04/2026;{INVOICE};;50,00\n09/04/2026;09/04/2026;Order 7;-12,50;\n"
        ),
        {"dates": "dmy"},
    ),
    (
        "British",
        (
            "Transaction Date,Transaction Type,Sort Code,Account Number,Transaction Description,"
            "Debit Amount,Credit Amount,Balance\n"
            f"08/04/2026,BGC,10-20-30,12345,{INVOICE},,50.00,1050.00\n"
            "09/04/2026,DD,10-20-30,12345,Order 7,12.50,,1037.50\n"
        ),
        {"dates": "dmy", "currency": "EUR"},
    ),
    (
        "Chase",
        (
            "Details,Posting Date,Description,Amount,Type,Balance,Check or Slip #\n"
            f"CREDIT,04/08/2026,{INVOICE},50.00,ACH,1050.00,\nDEBIT,04/09/2026,Order 7,-12.50,ACH,1037.50,\n"
        ),
        {"dates": "mdy", "currency": "EUR"},
    ),
    (
        "UBS",
        (
            "Abschlussdatum;Buchungsdatum;Valutadatum;Währung;Belastung;Gutschrift;Einzelbetrag;Saldo;"
            "Transaktions-Nr.;Beschreibung1\n"
            f"2026-04-08;2026-04-08;2026-04-08;EUR;;50.00;;1050.00;T1;{INVOICE}\n"
            "2026-04-09;2026-04-09;2026-04-09;EUR;-12.50;;;1037.50;T2;Order 7\n"
        ),
        {},
    ),
)


@pytest.mark.parametrize(("bank", "text", "options"), NAMELESS, ids=[bank for bank, *_ in NAMELESS])
def test_exports_without_names_of_payers_keep_the_reference(
    bank: str, text: str, options: dict[str, str]
) -> None:
    assert [(amount, when, wrote) for amount, _, when, _, wrote in read(text, **options)] == [
        (5000, "2026-04-08", INVOICE),
        (-1250, "2026-04-09", "Order 7"),
    ]
