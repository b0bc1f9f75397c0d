"""The W3C traceparent of requests: an explicit one, or that of the current span of OpenTelemetry."""
from __future__ import annotations

import re
import sys
from collections.abc import Callable

from .errors import InvalidRequestError

#: A traceparent, or a function that returns the current one.
TraceParent = str | Callable[[], str | None]

_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Trace:
    """Returns the headers that continue the caller's trace."""

    def __init__(self, given: TraceParent | None) -> None:
        if isinstance(given, str) and not _FORM.fullmatch(given):
            raise InvalidRequestError(f"{given[:100]!r} is no traceparent",
                                      hint="the form is 00-TRACE_ID-SPAN_ID-FLAGS, in lowercase hex")
        self._given = given

    def headers(self) -> dict[str, str]:
        """Returns the header of a request. A value of another form is not sent."""
        value = self._given
        if value is None:
            value = _current()
        elif not isinstance(value, str):
            value = value()
        return {"traceparent": value} if isinstance(value, str) and _FORM.fullmatch(value) else {}


def _current() -> str | None:
    """Returns the traceparent of OpenTelemetry's current span.

    A program without OpenTelemetry has no span, so this module does not import it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    except Exception:  # a trace must not break a request
        return None
