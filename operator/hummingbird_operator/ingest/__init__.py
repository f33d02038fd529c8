"""From a forge's event to an AgentRun: decode, gate, look up, create. Many replicas, no state of their own."""
