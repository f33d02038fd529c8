"""The contract with the cluster: the two kinds, their conditions and labels, and the writer of their CRDs."""
