"""Figures, not verdicts: a module for each subject, each on a cluster's real API server with a real operator process.

`make bench` measures everything; `python -m bench waiting claims` only those. Bars stand in the text of a line, and
behind every figure the load of the machine when it was printed: compare in one run, not across machines.
"""
