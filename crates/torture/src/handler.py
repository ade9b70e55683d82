import json, os, time, zlib

if getattr(ctx, "context", None) is None:
    ctx.context = "%d-%d" % (os.getpid(), time.monotonic_ns())
    path = "HISTORY_DIR/context-" + ctx.context
    ctx.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(event):
    line = json.dumps({"at": time.monotonic_ns() - ORIGIN_NS, "event": event})
    os.write(ctx.file, (line + "\n").encode())


def origin(index):
    return json.dumps({"origin": {"emit": {"of": job.id, "index": index}}})


def checksum(mark, index):
    statuses = ", ".join(map(str, plan.get("statuses", [])))
    numbers = [plan.get("emits", 0), plan.get("children", 0), int(plan.get("progress", False))]
    numbers = " ".join(map(str, numbers + [plan.get("run_ms", 0)]))
    text = "%d %d [%s] %s %s" % (mark, index, statuses, numbers, content.get("pad", ""))
    return "%08x" % zlib.crc32(text.encode())


def body():
    if not payload:
        return "empty"
    add = (content.get("origin") or {}).get("add")
    if add and checksum(add["mark"], add["index"]) == content.get("sum"):
        return {"intact": {"add": add}}
    return "other"


try:
    content = json.loads(payload)
except ValueError:
    content = {}
plan = content.get("plan", {})
began = {
    "job": job.id,
    "tenant": job.tenant,
    "type": job.type,
    "attempt": job.attempt,
    "daemon": os.path.basename(os.environ["PATH"]),
    "context": ctx.context,
}
if content.get("origin"):
    began["origin"] = content["origin"]
note({"began": began})
note({"read": {"job": job.id, "body": body()}})
if plan.get("progress"):
    job.progress(50, "at work")
time.sleep(plan.get("run_ms", 0) / 1000)
emits = plan.get("emits", 0)
for index in range(emits):
    emit(job.type, origin(index))
children = 0 if job.children else plan.get("children", 0)
for index in range(emits, emits + children):
    emit(job.type, origin(index), {"parent": job.id})
statuses = plan.get("statuses", [])
status = statuses[min(job.attempt, len(statuses)) - 1] if statuses else 200
result = {"origin": {"then": {"of": job.id}}, "by": "%s-%d" % (ctx.context, job.attempt)}
data = json.dumps(result)
ended = {
    "job": job.id,
    "context": ctx.context,
    "status": status,
    "emitted": emits,
    "children": children,
    "data": data,
}
note({"ended": ended})
return {"status": status, "data": data}
