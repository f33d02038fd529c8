"""The webhooks of a project as GitLab keeps them: set up, enabled, and what it recorded of their deliveries."""
