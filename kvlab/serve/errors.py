"""What a client is told when something is wrong, in OpenAI's form."""

from collections.abc import Mapping

from kvlab.tensors.out_of_memory import NotEnoughMemory


class ApiError(Exception):
    """An answer other than success.

    status: of HTTP. message: what is wrong and what to do. param: the field that is meant; code: a
    word for programs. As JSON: {"error": {"message", "type", "param", "code"}}.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """OpenAI's `type`: whose mistake it is."""
        if self.status >= 500:
            return "server_error"
        return "rate_limit_error" if self.status == 429 else "invalid_request_error"

    def body(self) -> dict[str, object]:
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def engine_failed(error: BaseException) -> ApiError:
    """A step raised. Its message may quote another request's text, so only its kind is told;
    that of NotEnoughMemory is ours, and holds numbers and what helps."""
    if isinstance(error, NotEnoughMemory):
        return ApiError(500, str(error), code="out_of_memory")
    return ApiError(
        500,
        f"the engine failed in a step of this request ({type(error).__name__}); it was ended, "
        "others go on: send it again",
        code="engine_error",
    )


def server_fault() -> ApiError:
    return ApiError(500, "a fault of the server; its log says where", code="internal")


def stopping() -> ApiError:
    return ApiError(503, "the server is stopping; send it again later", code="stopping")
