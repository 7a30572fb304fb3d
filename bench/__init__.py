"""Measurements with their spread, each beside a baseline of the same run where one is named.

``./dev bench [NAME…]`` runs all, or those named, prints a table and writes ``bench/results/``.
"""
