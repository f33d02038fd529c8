"""The wire to a forge, as far as reading and writing share it: who we are, which host, how long to wait."""
