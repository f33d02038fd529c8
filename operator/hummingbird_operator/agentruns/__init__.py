"""From an AgentRun to its visible outcome: gather, decide, apply, one step at a time."""
