"""One module per resource: what it reads as, its parameters, and its addresses."""
