"""Operations handed in and questions asked over HTTP, each as it is: see `services/wire_forms.py`."""

import itertools
import secrets
from collections.abc import Iterator
from typing import Any

from headwater.client.exchange import Exchange, decoder_of, encode
from headwater.log.operations import Operation
from headwater.services.wire_forms import (
    answer_kind,
    answer_of,
    operation_path,
    question_path,
    result_kind,
    to_wire,
)
from headwater.stores.questions import Answer, Question


class Wire:
    """One server's operations and questions. The database is that of the token, whatever they name."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.keys: Iterator[str] = (
            f"{prefix}{number}" for prefix in (secrets.token_hex(8) + ".",) for number in itertools.count()
        )

    async def run(self, operation: Operation) -> Any:
        """One operation, and what it came to. It has a key, so that it takes effect once however often it is sent."""
        kind = type(operation)
        body = encode({**to_wire(operation), "key": operation.key or next(self.keys)})
        return answer_of(await self._exchange.ask("POST", operation_path(kind), body, decoder_of(result_kind(kind))))

    async def ask(self, question: Question[Answer]) -> Answer:
        """What the server answers to a question."""
        kind = type(question)
        told = await self._exchange.ask(
            "POST", question_path(kind), encode(to_wire(question)), decoder_of(answer_kind(kind))
        )
        answer: Answer = answer_of(told)
        return answer
