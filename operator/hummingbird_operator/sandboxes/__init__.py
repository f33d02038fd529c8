"""Where the model's commands run: one module for each backend."""
