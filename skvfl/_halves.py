"""Halves of a fitted estimator: what each organisation has learnt, by itself."""

from __future__ import annotations

import pickle
from pathlib import Path

from sklearn.utils.validation import check_is_fitted

from skvfl._random import without_seeds
from skvfl.exceptions import PartyValueError
from skvfl.federation import Handle

# The first bytes of a file of a half. Reading a pickle runs code, so other files are
# refused before that; it keeps out mistakes, not somebody who writes the same bytes.
_HALF = b"skvfl half 1\n"


class HalvesMixin:
    """Saves and loads fitted parties one by one.

    The estimator keeps them in ``_parties``, by the names in ``_names``; a ``Handle``
    stands for one that stayed with its organisation.
    """

    def _half(self, name):
        """The fitted party of an organisation, or what stands for it."""
        if name not in self._parties:
            raise PartyValueError(
                name, "its half of the fitted model is not here: see load_half"
            )
        return self._parties[name]

    @property
    def halves_(self):
        """Names of the organisations whose fitted half is in this object.

        After a simulation these are all of them, so who has the object can do what any
        of them can. Between organisations it is the active party alone.
        """
        check_is_fitted(self)
        return [
            name
            for name, party in self._parties.items()
            if not isinstance(party, Handle)
        ]

    def keep_halves(self, names):
        """The same fitted estimator with the halves of some organisations only.

        Parameters
        ----------
        names : list of str
            Organisations whose half stays.

        Returns
        -------
        estimator : estimator
            A copy. It predicts once the other halves are loaded, or reached. Its
            parameters have no ``random_state``, from which a simulation draws
            everybody's secrets.
        """
        unknown = sorted(set(names) - set(self.halves_))
        if unknown:
            raise ValueError(
                f"this object has no half of {unknown}, but {self.halves_}"
            )
        # The seed of a simulation gives the projections, keys and masks of the
        # organisations whose halves are left out, so it goes, too.
        kept = without_seeds(self)
        kept.partition_ = without_seeds(self.partition_)
        # A scheduler or checkpoint refers to the networks of whose it is.
        if hasattr(kept, "callbacks"):
            kept.callbacks = None
        kept._parties = {
            name: party
            for name, party in self._parties.items()
            if name in names or isinstance(party, Handle)
        }
        return kept

    def save_half(self, name, path):
        """Write what one organisation has learnt to a file of its own.

        Parameters
        ----------
        name : str
            Name of the organisation.
        path : str or path
            Of the file, which only this organisation should have.
        """
        if name not in self.halves_:
            raise ValueError(f"this object has no half of {name!r}, but {self.halves_}")
        # The class and the name go along, so that a half cannot be loaded into another
        # method, or in another organisation's place.
        content = pickle.dumps((type(self).__name__, name, self._parties[name]))
        Path(path).write_bytes(_HALF + content)

    def load_half(self, path):
        """Take in what one organisation has learnt.

        Parameters
        ----------
        path : str or path
            A file of :meth:`save_half`. Reading it runs code of whoever wrote it, so
            load files of your own organisation alone.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the file is of something else.
        """
        check_is_fitted(self)
        content = Path(path).read_bytes()
        if not content.startswith(_HALF):
            raise ValueError(f"{path} was not written by save_half")
        kind, name, party = pickle.loads(content[len(_HALF) :])
        if kind != type(self).__name__ or name not in self._names:
            raise ValueError(
                f"{path} has the half of {name!r} in a {kind}, and this "
                f"{type(self).__name__} has the parties {self._names}"
            )
        # A new dict in the order of the names: sums over parties depend on their order,
        # and copies of this estimator may share the old dict.
        self._parties = {
            each: party if each == name else self._parties[each]
            for each in self._names
            if each == name or each in self._parties
        }
        return self
