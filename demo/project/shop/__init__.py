"""A shop's basket: the small project whose pipeline fails in the demo."""
