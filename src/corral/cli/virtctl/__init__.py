"""Commands in virtctl's grammar: consoles, power, volumes, uploads, manifests by flags."""
