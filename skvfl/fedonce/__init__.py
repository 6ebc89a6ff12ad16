"""FedOnce: representations that are sent once."""
