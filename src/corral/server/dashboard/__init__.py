"""The dashboard: serves its page, a client of this API that runs in a browser."""
