"""The control loops that are corral's own.  To add one: write its file, name it in CONTROLLERS."""
