"""The one note on the merge request: its life, its marker, its inert text."""
