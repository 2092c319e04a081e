"""What the pages read: plain values, filtered by tenant, in a number of queries that never grows.

Everything here runs inside `tenant_scope`, whose role sees no other tenant's rows even where a
filter were forgotten. Amounts and quantities are exact; whoever shows them shortens them.
"""
