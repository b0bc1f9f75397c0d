"""The W3C trace context of requests: an explicit one, or that of the current span of OpenTelemetry."""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping

from .errors import InvalidRequestError

#: A traceparent, or a function that returns the current one. The function may also return a propagator's carrier: a
#: mapping with traceparent and tracestate.
TraceParent = str | Callable[[], str | Mapping[str, str] | None]

_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[ -~]{1,512}")


class Trace:
    """Returns the headers that continue the caller's trace."""

    def __init__(self, given: TraceParent | None) -> None:
        if isinstance(given, str) and not _FORM.fullmatch(given):
            raise InvalidRequestError(f"{given[:100]!r} is no traceparent",
                                      hint="the form is 00-TRACE_ID-SPAN_ID-FLAGS, in lowercase hex")
        self._given = given

    def headers(self) -> dict[str, str]:
        """Returns the headers of a request. A value of another form is not sent."""
        given = self._given
        value = _current() if given is None else given if isinstance(given, str) else given()
        carrier: Mapping[str, object]
        carrier = value if isinstance(value, Mapping) else {"traceparent": value}
        parent, state = carrier.get("traceparent"), carrier.get("tracestate")
        if not isinstance(parent, str) or not _FORM.fullmatch(parent):
            return {}
        if not isinstance(state, str) or not _STATE.fullmatch(state):
            return {"traceparent": parent}
        return {"traceparent": parent, "tracestate": state}


def _current() -> Mapping[str, str] | None:
    """Returns the trace context of OpenTelemetry's current span.

    A program without OpenTelemetry has no span, so this module does not import it.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}",
                "tracestate": span.trace_state.to_header()}
    except Exception:  # a trace must not break a request
        return None
