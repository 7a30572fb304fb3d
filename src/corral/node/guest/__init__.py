"""Tasks beside a running guest: access credentials, file system freezes, volume hotplug."""
