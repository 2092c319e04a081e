"""Bank transfers: statements are read, each entry is kept once for ever, and what it pays is found or waits for people.

`camt.py` and `csv_statement.py` read files into `entities.py`; `statement_import.py` keeps them; `matching.py` says
what an entry pays for sure; `transfer_posting.py` books it and takes it back; `manual_matching.py` is for what people
say of the rest.
"""
