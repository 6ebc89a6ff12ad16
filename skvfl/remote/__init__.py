"""Organisations on machines of their own."""
