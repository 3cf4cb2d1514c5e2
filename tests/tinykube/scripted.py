"""A transport whose answers a test gives, and which remembers what it was asked."""

from __future__ import annotations

from typing import Any

import msgspec

from tinykube.transport import Request, Response

Answer = Response | Exception


class Scripted:
    """Follows `Transport`; the last answer is given again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass

    @property
    def body(self) -> Any:
        """What was sent last."""
        return msgspec.json.decode(self.requests[-1].body)


def answer(content: Any, status: int = 200, **headers: str) -> Response:
    """An answer in JSON; underscores in the names of headers are hyphens."""
    return Response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, msgspec.json.encode(content)
    )


def refusal(code: int, reason: str, message: str, **headers: str) -> Response:
    """An answer with a Status."""
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return answer(status, code, **headers)
