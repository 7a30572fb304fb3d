"""Commands with virtctl's syntax: consoles, power, volumes, uploads, manifests by flags."""
