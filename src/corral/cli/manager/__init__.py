"""Commands for the manager: up, stop, status, backup, images, users."""
