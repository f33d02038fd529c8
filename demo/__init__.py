"""The product on a stage: a real cluster, a real operator process, stand-ins for what no test machine has."""
