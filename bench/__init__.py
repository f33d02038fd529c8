"""Figures, not verdicts: each bench compares two things in one run and prints the ratio. `make bench` runs them all."""
