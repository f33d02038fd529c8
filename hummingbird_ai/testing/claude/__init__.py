"""What a Claude on Vertex AI refuses and answers."""
