"""What the database refuses of documents that were issued, whoever asks for it: the bodies of triggers."""

from __future__ import annotations

INVOICE = """
IF TG_OP = 'DELETE' THEN
    IF OLD.state IN ('issued', 'void') THEN
        RAISE EXCEPTION 'Invoice % is issued and cannot be deleted: correct it with a credit note.', OLD.number;
    END IF;
    RETURN OLD;
END IF;
IF OLD.state IN ('issued', 'void')
   AND (to_jsonb(NEW) - 'state') IS DISTINCT FROM (to_jsonb(OLD) - 'state') THEN
    RAISE EXCEPTION 'Invoice % is issued and cannot be changed: correct it with a credit note.', OLD.number;
END IF;
IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
    ('draft', 'pending-approval'), ('draft', 'issued'),
    ('pending-approval', 'draft'), ('pending-approval', 'issued'), ('issued', 'void')) THEN
    RAISE EXCEPTION 'An invoice cannot go from % to %.', OLD.state, NEW.state;
END IF;
IF NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.subtotal <> (
    SELECT coalesce(sum(amount), 0) FROM billing_invoiceline WHERE invoice_id = NEW.id) THEN
    RAISE EXCEPTION 'The lines of invoice % do not add up to its subtotal.', NEW.number;
END IF;
IF NEW.state = 'issued' AND OLD.state <> 'issued' AND (NEW.subtotal, NEW.tax) <> (
    SELECT coalesce(sum(net), 0), coalesce(sum(tax), 0) FROM billing_invoicetax WHERE invoice_id = NEW.id) THEN
    RAISE EXCEPTION 'The taxes of invoice % do not add up to its subtotal and tax.', NEW.number;
END IF;
IF NEW.prepaid <> 0 AND NEW.state IN ('issued', 'void') AND NEW.state <> OLD.state
   AND NEW.prepaid * (NEW.state = 'issued')::int <> (
    SELECT coalesce(sum(amount), 0) FROM billing_walletentry WHERE invoice_id = NEW.id AND side = 'invoice') THEN
    RAISE EXCEPTION 'The wallet has not paid on invoice % what it says.', NEW.number;
END IF;
IF NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.original_id IS NOT NULL THEN
    PERFORM FROM billing_invoice WHERE id = NEW.original_id FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT FROM billing_invoice WHERE id = NEW.original_id AND tenant_id = NEW.tenant_id
                   AND currency = NEW.currency AND state = 'issued' AND kind <> 'credit-note') THEN
        RAISE EXCEPTION 'Credit note % does not go with its invoice.', NEW.number;
    END IF;
    IF EXISTS (SELECT FROM billing_invoiceline l LEFT JOIN billing_invoiceline o ON o.id = l.original_id
               WHERE l.invoice_id = NEW.id AND o.invoice_id IS DISTINCT FROM NEW.original_id) THEN
        RAISE EXCEPTION 'Credit note % has a line that its invoice does not have.', NEW.number;
    END IF;
    IF 0 > (SELECT o.total + NEW.total + coalesce((SELECT sum(c.total) FROM billing_invoice c
                WHERE c.original_id = o.id AND c.state = 'issued' AND c.id <> NEW.id), 0)
            FROM billing_invoice o WHERE o.id = NEW.original_id)
       OR EXISTS (SELECT FROM billing_invoiceline o
                  JOIN billing_invoiceline c ON c.original_id = o.id
                  JOIN billing_invoice i ON i.id = c.invoice_id AND (i.state = 'issued' OR i.id = NEW.id)
                  WHERE o.invoice_id = NEW.original_id
                  GROUP BY o.id HAVING (o.amount + sum(c.amount)) * sign(o.amount) < 0) THEN
        RAISE EXCEPTION 'Credit note % exceeds what is left of its invoice.', NEW.number;
    END IF;
END IF;
RETURN NEW;
"""
"""An issued invoice never changes but to become void; what is issued adds up; no credit note takes back too much."""


def part(noun: str) -> str:
    """Of what belongs to an invoice: nothing of an issued one changes, and nothing joins it."""
    return f"""
IF TG_OP <> 'INSERT' AND (SELECT state FROM billing_invoice WHERE id = OLD.invoice_id) IN ('issued', 'void') THEN
    RAISE EXCEPTION 'The {noun} of an issued invoice cannot be changed: correct it with a credit note.';
END IF;
IF TG_OP <> 'DELETE' AND (SELECT state FROM billing_invoice WHERE id = NEW.invoice_id) IN ('issued', 'void') THEN
    RAISE EXCEPTION 'An issued invoice takes no more {noun}: correct it with a credit note.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""  # noqa: S608 - a text of a trigger, built from a constant


VOIDING = """
IF TG_OP <> 'INSERT' THEN
    RAISE EXCEPTION 'An invoice stays void, and why: close its period again.';
END IF;
IF EXISTS (SELECT FROM billing_payment WHERE invoice_id = NEW.invoice_id HAVING sum(amount) <> 0)
   OR EXISTS (SELECT FROM billing_invoice WHERE original_id = NEW.invoice_id AND state = 'issued') THEN
    RAISE EXCEPTION 'An invoice that was paid or credited cannot be void: credit the rest of it.';
END IF;
RETURN NEW;
"""
"""Once, for ever, and never of an invoice that money or a credit note came for."""


MANUAL = """
IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION 'A manual line is not changed: remove it and add another.';
END IF;
IF EXISTS (SELECT FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
           WHERE l.kind = 'manual' AND l.term_id = OLD.id AND i.state IN ('issued', 'void')) THEN
    RAISE EXCEPTION 'This line was billed: credit the invoice, or add a line that takes it off.';
END IF;
RETURN OLD;
"""
"""What was billed says who added it, and why, for ever."""


PENDING_APPROVAL = """
IF EXISTS (SELECT FROM billing_pendingapproval p WHERE p.period_id = NEW.period_id
           AND (p.state <> 'approved' OR (p.currency = NEW.currency AND p.total < NEW.total))) THEN
    RAISE EXCEPTION 'Invoice % is beyond what was approved: approve it first.', NEW.number;
END IF;
RETURN NEW;
"""
"""What was pending-approval is issued with an approval of as much, or not at all."""


CREDIT_DATE = """
IF NEW.issued_on < (SELECT issued_on FROM billing_invoice WHERE id = NEW.original_id) THEN
    RAISE EXCEPTION 'Credit note % would be older than its invoice: date it on a later day.', NEW.number;
END IF;
RETURN NEW;
"""
"""Nothing is taken back before it was asked for: a month that is closed in the books would change."""


PAYER = """
IF TG_OP = 'DELETE' THEN
    RAISE EXCEPTION 'Who paid is kept: end it on the day on which it began.';
END IF;
IF TG_OP = 'UPDATE'
   AND (OLD.tenant_id, OLD.payer_id, OLD.since) IS DISTINCT FROM (NEW.tenant_id, NEW.payer_id, NEW.since) THEN
    RAISE EXCEPTION 'Who pays from when stays: end it, and add another.';
END IF;
PERFORM FROM tenants_tenant WHERE id IN (NEW.tenant_id, NEW.payer_id) ORDER BY id FOR NO KEY UPDATE;
IF (TG_OP = 'INSERT' OR coalesce(NEW.until, 'infinity') > coalesce(OLD.until, 'infinity'))
   AND EXISTS (SELECT FROM billing_archive a WHERE a.tenant_id IN (NEW.tenant_id, NEW.payer_id)) THEN
    RAISE EXCEPTION 'Whoever has left and is archived pays for nobody from then on, and nobody for it.';
END IF;
IF EXISTS (SELECT FROM billing_payer p
           WHERE p.id <> NEW.id AND (p.tenant_id = NEW.payer_id OR p.payer_id = NEW.tenant_id)
           AND daterange(p.since, p.until, '[)') && daterange(NEW.since, NEW.until, '[)')) THEN
    RAISE EXCEPTION 'Whoever pays for another tenant has no payer at the same time.';
END IF;
RETURN NEW;
"""
"""Who pays is one step away, what was said of the past stays on record, and nobody is drawn in who has left."""
