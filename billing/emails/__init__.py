"""E-mails from notices: what each says, to which addresses, and handing it over to the mail server."""
