"""Hummingbird, the Kubernetes operator: AgentRuns on sandboxes with nothing to steal."""
