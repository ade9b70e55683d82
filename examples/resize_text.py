# Breaks a text into lines of a given width.
#
#   windlass run examples/resize_text.py --payload '{"width": 20, "text": "one long line of text"}'
#
# The lines are printed, so they stand in the job's log, and they are its result. A payload that
# makes no sense ends the job with 400: trying it again would not help.
#
# windlass: timeout=5s batch=50
import json
import textwrap

try:
    wish = json.loads(payload)
    lines = textwrap.wrap(wish["text"], wish.get("width", 72))
except (ValueError, KeyError, TypeError, AttributeError) as wrong:
    return {"status": 400, "data": f"not a text and a width: {wrong!r}"}

print("\n".join(lines))
return {"status": 200, "data": {"lines": lines}}
