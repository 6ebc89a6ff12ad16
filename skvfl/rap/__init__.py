"""RAP: one round of random projections, any model on the server."""
