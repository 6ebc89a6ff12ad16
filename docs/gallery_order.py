"""The order of the gallery: from the first question to what is seen in the end."""

FIRST = (
    "two_csv_files",
    "compare",
    "tuning",
    "rare_positives",
    "rap",
    "splitnn",
    "fedonce",
    "apc_predict_alone",
    "trees_in_one_round",
    "boosting",
    "images",
    "partner_offline",
    "client_failures",
    "privacy_budget",
    "what_the_server_sees",
)


class Order:
    """Key by which the gallery sorts its files; it is made for every folder."""

    def __init__(self, folder):
        pass

    def __call__(self, filename):
        """Place of an example; those that are not named above come last, by name."""
        name = filename.removeprefix("plot_").removesuffix(".py")
        return FIRST.index(name) if name in FIRST else len(FIRST), name
