"""Prepaid balances: opening and filling them, booking what was used, holding and spending."""
