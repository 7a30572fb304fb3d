"""Work beside a guest that runs: credentials, frozen file systems, volumes that come and go."""
