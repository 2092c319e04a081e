"""Sealed months: the rows of a month as Parquet files, proved equal to the ledger, and loaded back."""
