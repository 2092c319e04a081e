"""What follows when an invoice is not paid: notices, suspension, a proposal to write it off; and what undoes them."""
