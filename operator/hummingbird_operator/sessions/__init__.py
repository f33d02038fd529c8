"""The engine: the agent loop with its budget, tools, journal and transcript. Knows neither Kubernetes nor S3."""
