"""The origin of a batch, which decides the rules that the batch has to keep."""

from enum import Enum, auto


class AppendOrigin(Enum):
    """CLIENT is any producer outside a transaction."""

    CLIENT = auto()
    # A producer with a transactional id, whose transaction on the partition is open or verified.
    TRANSACTION = auto()
    # A coordinator that writes its own records, which have no sequence numbers.
    COORDINATOR = auto()
    # The end of a transaction, which the log itself has checked.
    MARKER = auto()
