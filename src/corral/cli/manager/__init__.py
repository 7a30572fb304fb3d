"""Commands of the manager itself: up, stop, status, backup, images, users."""
