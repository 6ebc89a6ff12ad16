"""What an organisation allows each peer: a list, and nothing that is not on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from skvfl.exceptions import RefusedError
from skvfl.federation import Settings
from skvfl.remote._config import Allowance, PartyConfig
from skvfl.remote._counts import Counts
from skvfl.remote._noise import NoiseRules

# What a partner is asked for in each method. An operation that a later version adds is
# refused until somebody has looked at what it sends.
# Callbacks of a party hear losses by the operations named last; a partner has none that
# a peer knows of, and then these do nothing.
OPERATIONS = {
    "rap": {"fit_transform", "transform"},
    "splitnn": {
        *("prepare", "begin_epoch", "forward", "backward", "finish"),
        *("represent", "remember", "recall"),
    },
    "fedonce": {
        *("learn", "spent", "encode", "join", "join_privately", "begin_epoch"),
        *("forward", "backward", "draw", "forward_rows", "backward_rows", "finish"),
    },
    "apc": {"say_rows", "agree_on_rows", "represent", "encode"},
    "vfedsec": {
        *("commit", "reveal", "draw_graph"),
        *("offer_keys", "agree_keys", "confirm_keys", "say_rows", "prepare"),
        *("check_columns", "sign_columns", "forward", "backward", "update"),
        *("remember", "recall"),
    },
    "tabvfl": {
        *("prepare", "begin_pretraining", "hide", "hide_held_out", "rebuild"),
        *("rebuild_held_out", "pretrain_alone", "evaluate_alone", "adapt"),
        *("begin_finetuning", "begin_epoch", "forward", "backward", "finish"),
        *("represent", "remember", "recall", "explain"),
    },
    "boosting": {"prepare", "begin_trees", "add_up", "split", "finish", "route"},
    "ids": {"describe_ids", "mask_ids", "agree_on_ids"},
}
# The parts that a partner plays; the others belong to whoever asks.
_ROLES = {
    "rap": ("rap.party",),
    "splitnn": ("splitnn.passive",),
    "fedonce": ("fedonce.guest", "fedonce.split"),
    "apc": ("apc.passive",),
    "vfedsec": ("vfedsec.passive",),
    "tabvfl": ("tabvfl.guest",),
    "boosting": ("boosting.passive",),
}
# Settings that say what a partner's columns go through before they leave.
_ENCODER = {
    "rap.party": "projection",
    "fedonce.guest": "local_encoder",
    "apc.passive": "local_encoder",
}
# What these answer with has no part for each row: masked ids, draws, keys, and
# gradients of weights that were summed over rows.
_OF_NO_ROW = {
    *("mask_ids", "commit", "reveal"),
    *("offer_keys", "agree_keys", "confirm_keys", "sign_columns"),
    *("backward", "update"),
    # Sums, and bits of splits: what they say of a row was looked at before the run.
    *("begin_trees", "add_up", "split", "route"),
}
# Keys of numbers that say how large a network is, and how deep.
_WIDTHS = {
    *("bottom", "hidden_layer_sizes", "n_components", "cut_width"),
    *("n_d", "n_a"),
}
_DEPTHS = {"n_steps", "n_independent", "n_shared"}
_MOST_LAYERS = 16


class Policy:
    """Decides, before anything is computed, whether a peer may have what it asks for.

    Counts of a day are kept in a file, so that a restart begins no new day.

    Parameters
    ----------
    config : PartyConfig
        With what is allowed.
    """

    def __init__(self, config: PartyConfig) -> None:
        self.name = config.name
        self._partners = set(config.partners)
        self._rules = {name: peer.allow for name, peer in config.peers.items()}
        self._counts = Counts(config.store / "counts.sqlite")
        self._noise = NoiseRules(config.name, self._counts)

    def check_opening(
        self,
        peer: str,
        method: str,
        role: str,
        settings: Settings | Mapping[str, Any] | None,
        columns: Iterable[str],
        n_rows: int,
    ) -> None:
        """Refuse a fit that is not allowed; count one that is.

        Parameters
        ----------
        peer : str
            Who asks.
        method : str
            Such as ``"splitnn"``.
        role : str
            Which part this organisation is to play.
        settings : Settings, dict or None
            What it is told, or the words that say it.
        columns : iterable of str
            Columns that would be learnt from.
        n_rows : int
            Number of rows.

        Raises
        ------
        RefusedError
            With what was asked for, and what is allowed.
        """
        rule = self._rule(peer)
        self._check_method(rule, method)
        if role not in _ROLES[method]:
            self._refuse(f"it plays no part {role!r}, only {_listed(_ROLES[method])}")
        if others := [str(each) for each in columns if each not in rule.columns]:
            self._refuse(f"columns {others} are not allowed")
        self.check_rows(peer, n_rows)
        said = settings.pack() if isinstance(settings, Settings) else settings or {}
        if not isinstance(said, Mapping):
            self._refuse("the settings are not in words")
        self._check_preparation(rule, said)
        self._check_encoder(rule, role, said)
        self._check_sizes(rule, said)
        self._check_width(rule, method, said)
        n_columns = len(list(columns))
        if method == "boosting" and n_columns > rule.max_width:
            self._refuse(
                f"from sums of boosting the bins of {n_columns} columns can be "
                f"computed, and {rule.max_width} is the largest number of values for "
                "one row that is allowed"
            )
        if method == "vfedsec":
            self._check_masks(peer, rule, said)
        run = self._noise.check_opening(rule, role, said, n_rows)
        # Last, so that what is refused counts for nothing.
        what = "continuations" if role == "fedonce.split" else "fits"
        self._count(peer, {what: (1, rule.fits_per_day)})
        if run is None:
            return
        try:
            self._noise.begin(peer, rule, run)
        except RefusedError:
            self._count(peer, {what: (-1, rule.fits_per_day)})
            raise

    def check_rows(self, peer: str, n_rows: int) -> None:
        """Refuse to learn from too few rows.

        Parameters
        ----------
        peer : str
            Who asks.
        n_rows : int
            Number of rows that this organisation holds.

        Raises
        ------
        RefusedError
            If they are fewer than is allowed.
        """
        rule = self._rule(peer)
        if n_rows < rule.min_rows:
            self._refuse(
                f"{n_rows} rows are asked for, and {rule.min_rows} is the smallest "
                "number that is allowed"
            )

    def check_named(self, peer: str, n_rows: int) -> None:
        """Refuse to look at more rows than ids may be compared.

        Parameters
        ----------
        peer : str
            Who asks.
        n_rows : int
            Number of rows that are named, whether this organisation holds them or not:
            each of them takes memory.

        Raises
        ------
        RefusedError
            If they are too many.
        """
        rule = self._rule(peer)
        if n_rows > rule.max_ids:
            self._refuse(
                f"{n_rows} rows are named at once, and {rule.max_ids} is the largest "
                "number of ids that is allowed"
            )

    def check_prediction(self, peer: str, n_rows: int) -> None:
        """Refuse a prediction beyond what is allowed in a day; count one that is not.

        Parameters
        ----------
        peer : str
            Who asks.
        n_rows : int
            Number of rows.

        Raises
        ------
        RefusedError
            With how many are left.
        """
        rule = self._rule(peer)
        self._count(peer, {"predicted rows": (n_rows, rule.rows_per_day)})

    def check_model(self, peer: str, role: str, settings: Any) -> None:
        """Refuse to answer with a model whose noise was allowed once, and is not now.

        Parameters
        ----------
        peer : str
            Who asks.
        role : str
            In which the model was fitted.
        settings : dict or None
            With which it was fitted, in words.

        Raises
        ------
        RefusedError
            With what is allowed.
        """
        rule = self._rule(peer)
        self._noise.check_cut(rule, role, settings or {})

    def check_alignment(self, peer: str, n_ids: int) -> None:
        """Refuse to compare ids more often than is allowed in a day, and count.

        Parameters
        ----------
        peer : str
            Who asks.
        n_ids : int
            Number of the peer's ids.

        Raises
        ------
        RefusedError
            If they are too many, or there were too many comparisons today.
        """
        rule = self._rule(peer)
        if n_ids > rule.max_ids:
            self._refuse(
                f"{n_ids} ids are more than the {rule.max_ids} that may be compared"
            )
        amounts = {
            "alignments": (1, rule.alignments_per_day),
            "compared ids": (n_ids, rule.ids_per_day),
        }
        self._count(peer, amounts)

    def check_passes(self, peer: str, n_taken: int, n_rows: int) -> None:
        """Refuse to learn on from rows that were taken often enough.

        Parameters
        ----------
        peer : str
            Who asks.
        n_taken : int
            How many rows this fit has taken for its batches so far.
        n_rows : int
            Number of rows of the fit.

        Raises
        ------
        RefusedError
            If these are as many passes over all rows as are allowed.
        """
        most = self._rule(peer).max_epochs
        if n_taken >= most * n_rows:
            self._refuse(f"a fit takes its rows {most} times at most, and it has")

    def check_operation(
        self,
        peer: str,
        method: str,
        operation: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuse an operation that the method has no use for, or that has no noise.

        Parameters
        ----------
        peer : str
            Who asks.
        method : str
            Of the run that was opened.
        operation : str
            Its name.
        arguments : dict, default=None
            What it is asked with.

        Raises
        ------
        RefusedError
            If it is not allowed.
        """
        rule = self._rule(peer)
        if method != "ids":
            self._check_method(rule, method)
        if operation not in OPERATIONS[method]:
            self._refuse(f"operation {operation!r} is not allowed in {method}")
        arguments = arguments or {}
        # TabVFL's guests are told this size only when their networks are built.
        share = arguments.get("share")
        if _exceeds(share, rule.max_layer):
            self._refuse(f"share={share} is more than the allowed {rule.max_layer}")
        # Here and nowhere else, so that one comparison counts as one.
        if operation == "mask_ids":
            masked = arguments.get("masked")
            n_ids = len(masked) if isinstance(masked, np.ndarray) and masked.ndim else 0
            self.check_alignment(peer, n_ids)
        self._noise.check_operation(peer, rule, operation, arguments)

    def check_reply(self, peer: str, operation: str, reply: Any) -> None:
        """Refuse to send more for one row than is allowed.

        Settings need not say how wide a network of somebody's own is; this looks at
        what it put out.

        Parameters
        ----------
        peer : str
            Who asks.
        operation : str
            What was asked for.
        reply : object
            What would leave.

        Raises
        ------
        RefusedError
            If it is wider than is allowed.
        """
        rule = self._rule(peer)
        if operation in _OF_NO_ROW:
            return
        for array in _arrays(reply):
            if array.ndim > 1 and array[0:1].size > rule.max_width:
                self._refuse(
                    f"its answer has {array[0:1].size} values for one row, and "
                    f"{rule.max_width} is the largest number that is allowed"
                )

    def terms(self, peer: str) -> dict[str, Any]:
        """What a peer may ask for, in words and numbers, and what is left today."""
        rule = self._rule(peer)
        said = dataclasses.asdict(rule)
        terms = {k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}
        for what, limit in {
            "fits": rule.fits_per_day,
            "predicted rows": rule.rows_per_day,
            "alignments": rule.alignments_per_day,
            "compared ids": rule.ids_per_day,
        }.items():
            terms[f"{what} left today"] = limit - self._counts.today(peer, what)
        return terms

    def _rule(self, peer: str) -> Allowance:
        rule = self._rules.get(peer)
        if rule is None:
            self._refuse(f"{peer!r} may ask for nothing")
        return rule

    def _refuse(self, why: str) -> NoReturn:
        raise RefusedError(self.name, f"refused: {why}")

    def _check_method(self, rule: Allowance, method: str) -> None:
        if method not in rule.methods:
            self._refuse(
                f"method {method!r} is not allowed; allowed are {_listed(rule.methods)}"
            )

    def _check_preparation(self, rule: Allowance, said: Mapping[str, Any]) -> None:
        """A transformer of others' could pick out one column or one row."""
        prepare = said.get("transformer", "auto")
        names = {prepare} if isinstance(prepare, str) else set(_estimators(prepare))
        if not names or not names <= set(rule.transformers):
            self._refuse(
                f"columns are not prepared by {sorted(names) or 'what has no name'}; "
                f"allowed are {_listed(rule.transformers)}"
            )

    def _check_encoder(
        self, rule: Allowance, role: str, said: Mapping[str, Any]
    ) -> None:
        field = _ENCODER.get(role)
        if field is None:
            return
        encoder = said.get(field)
        # The default of RAP: a projection that this organisation draws.
        if encoder is None and role == "rap.party":
            return
        names = set(_estimators(encoder))
        outer = encoder.get("name") if isinstance(encoder, Mapping) else None
        others = sorted(names.difference((*rule.encoders, *rule.transformers)))
        if outer not in rule.encoders or outer not in names or others:
            shown = others or [str(outer)]
            self._refuse(
                f"what {shown} puts out does not leave; allowed are "
                f"{_listed(rule.encoders)}"
            )

    def _check_sizes(self, rule: Allowance, said: Mapping[str, Any]) -> None:
        """Networks of others' wishes take this organisation's memory and time."""
        limits = dict.fromkeys(_WIDTHS, rule.max_layer)
        limits |= dict.fromkeys(_DEPTHS, _MOST_LAYERS)
        limits["max_epochs"] = limits["max_iter"] = rule.max_epochs
        for key, value in _walk(said):
            most = limits.get(key)
            if isinstance(value, list) and key in _WIDTHS and len(value) > _MOST_LAYERS:
                self._refuse(f"{key} has more than {_MOST_LAYERS} layers")
            # Whatever is no number is refused where the network is built.
            if most is not None and _exceeds(value, most):
                self._refuse(f"{key}={value} is more than the allowed {most}")

    def _check_width(
        self, rule: Allowance, method: str, said: Mapping[str, Any]
    ) -> None:
        keys = {"cut_width", "n_components"}
        # A mixture of columns is as wide as the table, which check_reply looks at.
        if method == "tabvfl" and said.get("design") != "joint":
            keys.add("n_d")
        for key, value in _walk(said):
            if key in keys and _exceeds(value, rule.max_width):
                self._refuse(
                    f"{key}={value} is wider than the allowed {rule.max_width}"
                )

    def _check_masks(self, peer: str, rule: Allowance, said: Mapping[str, Any]) -> None:
        if said.get("masked") is not True and not rule.unmasked:
            self._refuse("vFedSec without masks is not allowed")
        clients = {
            each for _, each in _walk(said.get("clusters")) if isinstance(each, str)
        }
        # A peer could make up another organisation, and know its part of a sum.
        others = sorted(clients - self._partners - {peer, self.name})
        if self._partners and others:
            self._refuse(
                f"vFedSec with {others} is not allowed, whose certificates are not "
                f"known here; under [partners] are {_listed(sorted(self._partners))}"
            )

    def _count(self, peer: str, amounts: Mapping[str, tuple[int, int]]) -> None:
        """Add amounts to counts of the day, all or none; limits come with them."""
        lacking = self._counts.take(peer, amounts)
        if lacking is not None:
            what, left = lacking
            amount, limit = amounts[what]
            self._refuse(
                f"{amount} {what} are asked for and {left} of {limit} a day are left, "
                "until midnight by universal time"
            )


def _walk(words: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in words, with the key nearest to it."""
    yield key, words
    if isinstance(words, Mapping):
        for name, each in words.items():
            # Wrappers of the words themselves keep the key that they stand under.
            wrapper = name in ("tuple", "dict", "params", "keywords")
            yield from _walk(each, key if wrapper else str(name))
    elif isinstance(words, list | tuple):
        for each in words:
            yield from _walk(each, key)


def _estimators(words: Any) -> Iterator[str]:
    """Names of the building blocks that words would make, at any depth."""
    for _, each in _walk(words):
        if isinstance(each, Mapping) and "name" in each and "params" in each:
            yield str(each["name"])


def _exceeds(value: Any, most: int) -> bool:
    # The other way around NaN would pass.
    return isinstance(value, int | float) and not value <= most


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _arrays(reply: Any) -> Iterator[np.ndarray]:
    if isinstance(reply, np.ndarray):
        yield reply
    elif isinstance(reply, Mapping):
        for each in reply.values():
            yield from _arrays(each)
    elif isinstance(reply, list | tuple):
        for each in reply:
            yield from _arrays(each)
