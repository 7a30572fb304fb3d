"""Entry point.  Imports a command only when it is run: a listing must not load the hypervisor."""
