"""What the bank trains; the rehearsal trains the same."""

from skvfl import FedOnceClassifier, NoiseAsTargetsEncoder, SplitNNClassifier

SEED = 0
METHODS = {
    "FedOnce": FedOnceClassifier(
        local_encoder=NoiseAsTargetsEncoder(8, max_epochs=20),
        max_epochs=20,
        random_state=SEED,
    ),
    "SplitNN": SplitNNClassifier(max_epochs=10, random_state=SEED),
}
