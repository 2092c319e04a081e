"""Accounting logs of PBS, LSF and Grid Engine: one record a line, as each scheduler writes them."""
