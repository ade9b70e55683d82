# Counts the words of one part of a text; see fan_out.php, which asks for it.
import json

part = json.loads(payload)
words = len(part.pop("text").split())
return {"data": {**part, "words": words}}
