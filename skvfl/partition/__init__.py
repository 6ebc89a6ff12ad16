"""Who holds which columns, and how each party prepares its own."""
