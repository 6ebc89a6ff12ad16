"""Errors and warnings that name the party, the column and the cure."""

from __future__ import annotations


class ShareableError(Exception):
    """What its message says may be read outside the party that raised it.

    Such a message may name parties and columns and never quotes a value of the table.
    """


class InvalidColumnError(ShareableError, ValueError):
    """A party's columns cannot be used as they are.

    The message names columns and positions and never quotes a value of the table, so
    it may leave the party that raised it.
    """


class SettingsError(ShareableError, ValueError):
    """A party was told of a role, a setting or a building block that it does not know.

    The message quotes what arrived, which is the sender's own.
    """


class ConfigurationError(ValueError):
    """What an organisation has written down about itself cannot be used.

    The message names the file, the key and the cure.
    """


class StateError(ShareableError, RuntimeError):
    """A party was asked for something before the operation that it builds on."""


class AlignmentError(ValueError):
    """Ids are missing, repeated, of different kinds, or have nothing in common.

    Raised where all tables are in the clear; the message has counts and examples of
    ids.
    """


class PartyError(RuntimeError):
    """A party failed, died, or sent a reply that cannot be used.

    Parameters
    ----------
    party : str
        Name of the party.
    message : str
        What happened, in words that may be read outside the party.

    Attributes
    ----------
    party : str
        Name of the party.
    """

    def __init__(self, party: str, message: str) -> None:
        super().__init__(f"party {party!r}: {message}")
        self.party = party
        self.message = message

    def __reduce__(self) -> tuple[type[PartyError], tuple[str, str]]:
        return type(self), (self.party, self.message)


class PartyValueError(PartyError, ValueError):
    """A party refused its input; also a :class:`ValueError`.

    Parameters
    ----------
    party : str
        Name of the party.
    message : str
        What happened, in words that may be read outside the party.
    """


class PartyTypeError(PartyError, TypeError):
    """A party was given something of the wrong type; also a :class:`TypeError`.

    Parameters
    ----------
    party : str
        Name of the party.
    message : str
        What happened, in words that may be read outside the party.
    """


class RefusedError(PartyError):
    """An organisation does not allow what it was asked for.

    It is there and answers, so a refusal is never taken for a party's absence. The
    message says what was asked for and what is allowed.

    Parameters
    ----------
    party : str
        Name of the party.
    message : str
        What happened, in words that may be read outside the party.
    """


def party_error(party: str, message: str, cause: BaseException) -> PartyError:
    """Error of the kind that ``cause`` is, for people outside the party.

    Parameters
    ----------
    party : str
        Name of the party.
    message : str
        What happened, in words that may be read outside the party.
    cause : BaseException
        What was raised inside the party.

    Returns
    -------
    error : PartyError
    """
    if isinstance(cause, TypeError):
        return PartyTypeError(party, message)
    if isinstance(cause, ValueError):
        return PartyValueError(party, message)
    return PartyError(party, message)


class WaitingError(RuntimeError):
    """Files were written for other organisations, whose replies are not here yet.

    Parameters
    ----------
    plans : list of path
        The files that they have to answer.
    """

    def __init__(self, plans: list) -> None:
        super().__init__(
            "replies are due: send these files to the organisations that they are "
            "named after, put what they send back into the same folder, and call the "
            f"same method again: {[str(each) for each in plans]}"
        )
        self.plans = plans

    def __reduce__(self) -> tuple[type[WaitingError], tuple[list]]:
        return type(self), (self.plans,)


class TrainingError(ShareableError, ValueError):
    """Training cannot start or cannot go on; the message names the cure."""


class InvalidOutputError(ShareableError, ValueError):
    """A transformer gave other rows than it was given, or no table of numbers.

    The message has counts and types and never quotes a value of the table.
    """


class PrivacyBudgetError(ShareableError, ValueError):
    """A privacy budget cannot be kept, or there is nothing to spend it on."""


class ColumnWarning(UserWarning):
    """A party's column may not say what its owner thinks it says.

    The message names the column, and the party where there is one, and never quotes a
    value of the table.
    """


class MissingPartyWarning(UserWarning):
    """A party did not answer, and the others go on without it."""


class InterruptedFitWarning(UserWarning):
    """A fit was interrupted, and the model is that of its last whole epoch."""


class MissingRowsWarning(UserWarning):
    """A party holds no value of some rows that are to be predicted.

    The message counts them and says what stands for the party's part of them.
    """


class PrivacyLeakWarning(UserWarning):
    """Something crosses between organisations that the user may not expect."""
