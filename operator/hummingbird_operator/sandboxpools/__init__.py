"""Keeps standby sandboxes ready, hands them out once, lets them linger, reaps them."""
