"""Data that tests take from elsewhere, and where to find it."""
