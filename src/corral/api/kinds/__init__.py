"""Every kind that is served.  To add one: write its file here, and name it in KINDS."""
