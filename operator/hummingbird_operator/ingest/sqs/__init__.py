"""`ingest sqs`: a queue, its leases, and what becomes of each message."""
