"""Where sessions and journals lie: one module for each kind of store."""
