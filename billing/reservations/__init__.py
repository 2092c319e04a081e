"""Reservations as they stand: how far their jobs have come, and so what is left of each."""
