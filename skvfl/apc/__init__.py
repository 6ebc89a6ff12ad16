"""APC-VFL: one exchange, and an active party that predicts alone."""
