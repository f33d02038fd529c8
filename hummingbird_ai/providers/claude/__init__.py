"""Claude on Vertex AI: `rawPredict`."""
