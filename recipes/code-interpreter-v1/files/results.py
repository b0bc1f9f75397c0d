"""What kernels display, as results of E2B's protocol."""
import json
import math

FIELDS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript",
    "e2b/data": "data", "e2b/chart": "chart",
}
BINARY = {"png", "jpeg", "pdf"}


def result(data, main):
    out = {"type": "result", **dict.fromkeys(FIELDS.values())}
    extra = {}
    for mime, value in data.items():
        field = FIELDS.get(mime)
        value = plain(value)
        if field is None:
            extra[mime] = value
            continue
        if field == "text":
            value = unquoted(value)
        elif field in BINARY:
            value = value.replace("\n", "")  # of base64
        out[field] = value
    out["extra"] = extra
    out["is_main_result"] = main
    return out


def unquoted(text):
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def plain(value):
    """value without what JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
