"""What the model may read: one module for each data source, read-only."""
