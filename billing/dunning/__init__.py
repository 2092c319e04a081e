"""What follows when an invoice is not paid: letters, suspension, a proposal to write it off; and what undoes them."""
