"""Bank transfers: statements are read, each entry is kept once for ever, and what it pays is found or waits for people.

`camt.py` and `table.py` read files into the values of `values.py`; `importing.py` keeps them; `matching.py` says what
an entry pays for sure; `booking.py` books it and takes it back; `deciding.py` is for what people say of the rest.
"""
