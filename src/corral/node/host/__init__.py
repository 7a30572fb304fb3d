"""The host's own services: processes, inotify, open files, allowed destinations."""
