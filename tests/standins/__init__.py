"""Stand-ins for services that cannot be installed here: loopback servers that keep state and refuse as those do."""
