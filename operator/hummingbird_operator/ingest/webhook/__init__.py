"""`ingest webhook`: what GitLab sends by HTTP, from the socket to the event."""
