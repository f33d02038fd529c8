"""What a Gemini refuses and answers."""
