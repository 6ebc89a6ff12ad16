"""What an organisation asks of noise, and how much of its budgets is spent."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NoReturn

from skvfl.exceptions import RefusedError
from skvfl.remote._config import Allowance
from skvfl.remote._counts import NOISY, Counts


class NoiseRules:
    """Decides whether what leaves has noise enough.

    Parameters
    ----------
    name : str
        Of the organisation.
    counts : Counts
        With what was spent so far.
    """

    def __init__(self, name: str, counts: Counts) -> None:
        self.name = name
        self._counts = counts

    def _refuse(self, why: str) -> NoReturn:
        raise RefusedError(self.name, f"refused: {why}")

    def check_opening(
        self, rule: Allowance, role: str, said: Mapping[str, Any], n_rows: int
    ) -> Any:
        """Refuse a fit with too little noise; its noisy steps, if they count."""
        self.check_cut(rule, role, said)
        run = self._run_of_fit(rule, role, said)
        self._check_steps(rule, said, n_rows)
        return run

    def check_cut(self, rule: Allowance, role: str, said: Mapping[str, Any]) -> None:
        """Refuse to send rows, in a fit or of a model, without noise enough on them."""
        if role == "fedonce.split":
            self._check_split(rule)
        if role not in ("fedonce.guest", "splitnn.passive"):
            return
        noise = _number(said.get("representation_noise"), 0.0)
        if not noise >= rule.min_noise:
            self._refuse(
                f"representation_noise={noise:g} is less than the smallest that is "
                f"allowed, {rule.min_noise:g}"
            )
        if role == "fedonce.guest" and rule.min_noise > 0:
            self._check_range(said["local_encoder"])
        if role == "splitnn.passive" and rule.max_norm is not None:
            norm = _number(said.get("max_representation_norm"), inf)
            if not norm <= rule.max_norm:
                self._refuse(
                    f"max_representation_norm={norm:g} is more than the largest that "
                    f"is allowed, {rule.max_norm:g}"
                )

    def check_operation(
        self, peer: str, rule: Allowance, operation: str, arguments: Mapping[str, Any]
    ) -> None:
        """Refuse split epochs with too little noise, and spend that of the others."""
        if operation in ("join", "join_privately"):
            self._check_split(rule)
        if rule.max_epsilon is None:
            return
        if operation == "join":
            self._refuse("split epochs without noise are not allowed: set an epsilon")
        if operation == "join_privately":
            split = self._run(arguments.get("run"))
            # The one round was accounted for when it began, perhaps before a restart.
            # Of several fits today the one that spent most is taken.
            self._check_epsilon(rule, [split])
            for earlier in self._counts.runs(peer):
                self._check_epsilon(rule, [self._run(earlier), split])
            self.spend(peer, rule, split)

    def begin(self, peer: str, rule: Allowance, run: Any) -> None:
        """Spend the noisy steps of a fit, and keep them for its split epochs."""
        self.spend(peer, rule, self._run(run))
        self._counts.keep_run(peer, run)

    def _run_of_fit(
        self, rule: Allowance, role: str, said: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        if role != "fedonce.guest" or rule.max_epsilon is None:
            return None
        encoder = said["local_encoder"]
        if encoder["name"] == "RandomFeaturesEncoder":
            return None  # looks at the number of columns alone
        if encoder["name"] != "NoiseAsTargetsEncoder":
            self._refuse(f"{encoder['name']} learns without noise: set another guest")
        params = encoder["params"]
        if params.get("dict", params).get("max_epochs") == 0:
            return None  # draws its network and does not train it
        run = said.get("run")
        if run is None or said.get("max_grad_norm") is None:
            self._refuse(
                f"a fit without a budget is not allowed: set epsilon to "
                f"{rule.max_epsilon:g} or less"
            )
        self._check_epsilon(rule, [self._run(run)])
        return dict(run.get("dict", run))

    def _check_steps(
        self, rule: Allowance, said: Mapping[str, Any], n_rows: int
    ) -> None:
        """Noisy steps take time, whatever they spend."""
        if said.get("run") is None:
            return
        run = self._run(said["run"])
        # A batch has one row at least, and the last one of an epoch may be cut short.
        passes = run.steps * run.sampling_rate / 2
        if not max(passes, run.steps / max(n_rows, 1)) <= rule.max_epochs:
            self._refuse(
                f"{run.steps} noisy steps are more than {rule.max_epochs} epochs, "
                "which are allowed"
            )

    def _check_split(self, rule: Allowance) -> None:
        """A row has the same noise in all epochs, which gradients can uncover.

        They can drive a network to put out the same for every row, and then what
        arrives is the noise alone.
        """
        if rule.min_noise > 0:
            self._refuse(
                f"split epochs are not allowed beside min_noise={rule.min_noise:g}, as "
                "they uncover noise: set n_split_epochs=0"
            )

    def _check_range(self, encoder: Mapping[str, Any]) -> None:
        """Noise hides nothing where a peer decides how large the numbers are."""
        params = encoder["params"]
        params = params.get("dict", params)
        if encoder["name"] == "AutoencoderTransformer" or (
            params.get("output_activation", "tanh") != "tanh"
        ):
            self._refuse(
                f"{encoder['name']} puts out numbers of any size, which no noise "
                'hides: take NoiseAsTargetsEncoder with output_activation="tanh"'
            )

    def _run(self, fields: Any) -> Any:
        """Noisy steps as a fit tells of them, in this organisation's own name."""
        from skvfl.privacy import SampledGaussian

        try:
            # Words and messages say a dict differently.
            fields = fields.get("dict", fields)
            given = {name: fields[name] for name in NOISY}
            parties = fields.get("parties", ())
            if isinstance(parties, Mapping):
                parties = parties["tuple"]
            # Who shares the rows makes a difference, by their number and not by name.
            names = (self.name, *(f"peer {i}" for i in range(1, len(parties))))
            return SampledGaussian(**given, parties=names)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._refuse("what is said of noisy steps is no sampled Gaussian")

    def _check_epsilon(self, rule: Allowance, runs: list[Any]) -> None:
        from skvfl.privacy import account_privacy

        spent = account_privacy(runs, rule.delta).epsilon
        # Noise is calibrated to the budget up to rounding.
        most = rule.max_epsilon
        if most is not None and not spent <= most * (1 + 1e-6):
            self._refuse(
                f"epsilon={spent:.3g} at delta={rule.delta:g} is more than the allowed "
                f"{most:g}"
            )

    def spend(self, peer: str, rule: Allowance, run: Any) -> None:
        """Add noisy steps to those of all fits so far, if that is not too much."""
        from skvfl.privacy import account_privacy

        with self._counts.spending(peer, run) as spent:
            most = rule.total_epsilon
            if most is None:
                return
            total = account_privacy(map(self._run, spent), rule.delta).epsilon
            if not total <= most * (1 + 1e-6):
                self._refuse(
                    f"with this fit epsilon={total:.3g} at delta={rule.delta:g} is "
                    f"spent on all fits so far, and {most:g} is allowed in total"
                )


def _number(said: Any, otherwise: float) -> float:
    """What is said, if that is a number."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return otherwise
    return said
