"""Programs of repositories that are no packages: fetched once, at one commit."""
