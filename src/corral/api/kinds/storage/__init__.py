"""Claims, volumes and storage classes."""
