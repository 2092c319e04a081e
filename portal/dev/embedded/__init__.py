"""The database and the broker of an instance that was given none: private processes under its home."""
