"""The parts that all schema types share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple


class InvalidSchema(Exception):
    """A schema that cannot be parsed; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Reference(NamedTuple):
    """A schema that another one uses: the name it uses, and the version of a subject that it means."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


class Problem(NamedTuple):
    """A reason why data of one schema cannot be read with another."""

    kind: str
    """Confluent's name of the difference, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    text: str
    info: str = ""

    def __str__(self) -> str:
        info = f", additionalInfo:'{self.info}'" if self.info else ""
        return f"{{errorType:'{self.kind}', description:'{self.text}'{info}}}"


class ParsedSchema(ABC):
    """A valid schema of one of the types."""

    type: str
    canonical: str
    """The text that the registry stores; two texts with the same canonical form are the same schema."""

    @abstractmethod
    def normalized(self) -> str:
        """The canonical form after removing differences that have no meaning, such as an order."""

    @abstractmethod
    def problems_reading(self, written: ParsedSchema) -> list[Problem]:
        """The reasons why data of another schema of this type cannot be read with this one; none is good."""
