"""What both families share at Google: where models are served, who calls, and how errors read."""
