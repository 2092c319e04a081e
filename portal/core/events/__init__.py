"""What happened, as rows of the transactions that cause it: `from portal.core.events import events`.

Thin: which object came into which state; whoever wants more fetches the object. `numbering` gives each event its place
after its commit, so that readers who go on from a place miss nothing.
"""
