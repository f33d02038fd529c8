"""What no webhook brought: failed deliveries replayed, and what was never sent found in GitLab's own lists."""
