"""The bootstrap of a python context: reads requests from descriptor 3, runs the sources of
handlers and answers on descriptor 4; descriptor 5 ends a batch early. docs/contexts.md is the
contract.

Handlers run in the same interpreter and may replace anything in any module. So everything needed
after the first handler has run is imported by name here.
"""

import ast
import atexit
import binascii
import builtins
import codecs
import io
import json
import linecache
import os
import sys
import threading
import traceback
from time import perf_counter_ns as now, sleep
from types import ModuleType

PROTOCOL = 1
FRAME_BYTES_MAX = 33_554_432
TEXT_CHARS_MAX = 65_536
MARK_TRIES_MAX = 1000
LOOK_NS = 1_000_000  # How long jobs may follow each other without a look at descriptor 5.
PARAMETERS = {
    "before": ["ctx"],
    "beforeEach": ["ctx"],
    "afterEach": ["ctx"],
    "body": ["payload", "job", "ctx", "emit"],
}

write, close, pread, exit_now, chdir = os.write, os.close, os.pread, os._exit, os.chdir
new_lock = threading.RLock
# The native parts of these modules, which handlers cannot break by changing other parts.
parse, quote = json.scanner.c_make_scanner(json.JSONDecoder()), json.encoder.c_encode_basestring
make_encoder, no_json = json.encoder.c_make_encoder, json.JSONEncoder().default
b64encode, b64decode = binascii.b2a_base64, binascii.a2b_base64
TracebackException = traceback.TracebackException
for name, value in vars(builtins).items():
    if not name.startswith("__"):
        globals()[name] = value


# --- Answers -------------------------------------------------------------------------------------


def write_whole(descriptor, data, tries=None):
    """Another process that shares the descriptor may have made it non-blocking; `tries` bounds the
    waits."""
    while data:
        try:
            data = data[write(descriptor, data):]
        except BlockingIOError:
            if tries is not None:
                tries -= 1
                if tries < 0:
                    raise
            sleep(0.001)


# Threads left behind by a job may print while the next one ends, or while nothing runs.
speaking = new_lock()


def send(text):
    data = text.encode("utf-8", "windlass")
    data = len(data).to_bytes(4, "big") + data
    with speaking:
        try:
            written = write(4, data)
            if written != len(data):
                write_whole(4, memoryview(data)[written:])
        except BlockingIOError:
            write_whole(4, memoryview(data))
        except OSError:
            exit_now(70)  # Nobody listens any more.


def refuse(code, why):
    write_whole(2, f"{why}\n".encode(), MARK_TRIES_MAX)
    exit_now(code)


def replace_half(error):
    """An unpaired surrogate has no bytes."""
    return b"\xef\xbf\xbd" * (error.end - error.start), error.end


codecs.register_error("windlass", replace_half)


# --- Output --------------------------------------------------------------------------------------


class State:
    busy = False  # From a request to its last answer. Otherwise nobody expects frames.
    running = None  # The job that runs now.
    nonce = None  # What Windlass knows its answers by.
    result_bytes_max = 0
    mark = None


def output(stream, descriptor, text):
    with speaking:
        if State.busy:
            for at in range(0, len(text), TEXT_CHARS_MAX):
                part = quote(text[at:at + TEXT_CHARS_MAX])
                send(f'{{"kind":"output","stream":"{stream}","text":{part}}}')
            return
    try:
        write_whole(descriptor, text.encode("utf-8", "windlass"), MARK_TRIES_MAX)
    except OSError:
        pass  # What nobody reads is lost.


class Bytes(io.RawIOBase):
    """Replaces `sys.stdout.buffer`. Half a character is held back for its other half."""

    def __init__(self, name, descriptor):
        self._name, self._descriptor, self.mode = name, descriptor, "wb"
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._half = False

    def write(self, data):
        data = bytes(data)
        text = self._decoder.decode(data)
        self._half = True
        if text:
            output(self._name, self._descriptor, text)
        return len(data)

    def settle(self):
        self._half = False
        text = self._decoder.decode(b"", True)
        if text:
            output(self._name, self._descriptor, text)

    def writable(self):
        return True

    def fileno(self):
        return self._descriptor

    def close(self):
        pass


class Stream(io.TextIOBase):
    """Replaces `sys.stdout` and `sys.stderr`."""

    encoding, errors, line_buffering, mode = "utf-8", "replace", True, "w"

    def __init__(self, name, descriptor):
        self._name, self._descriptor, self.name = name, descriptor, f"<{name}>"
        self.buffer = Bytes(name, descriptor)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            output(self._name, self._descriptor, text)
        return len(text)

    def writable(self):
        return True

    def fileno(self):
        return self._descriptor

    def reconfigure(self, **options):
        pass

    def close(self):
        pass


stdout, stderr = Stream("stdout", 1), Stream("stderr", 2)


def restore_streams():
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr


def child_of_fork():
    """A child that a handler forks may print, but takes no part in the protocol."""
    global speaking
    State.busy, State.running = False, None
    speaking = new_lock()  # Another thread, which is not in the child, may hold the old one.
    for descriptor in (3, 4, 5):
        close(descriptor)


# --- Errors --------------------------------------------------------------------------------------


def describe(thrown):
    """Message and trace, without the frames of this file that lead to the handler."""
    try:
        trace = thrown.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        told = TracebackException(type(thrown), thrown, trace, compact=True)
        return "".join(told.format()).rstrip("\n")[:TEXT_CHARS_MAX]
    except BaseException:
        return f"{type(thrown).__name__}: an error that cannot be shown"


# --- Sources -------------------------------------------------------------------------------------


class Namespace:
    """`ctx` and `job`: the same things as attributes and as items."""

    def __getitem__(self, name):
        return vars(self)[name]

    def __setitem__(self, name, value):
        vars(self)[name] = value

    def __delitem__(self, name):
        del vars(self)[name]

    def __contains__(self, name):
        return name in vars(self)

    def __iter__(self):
        return iter(vars(self))

    def __len__(self):
        return len(vars(self))

    def __repr__(self):
        return f"{type(self).__name__}({vars(self)!r})"

    def get(self, name, default=None):
        return vars(self).get(name, default)


class Ctx(Namespace):
    pass


class Handler:
    def __init__(self, request):
        self.number, self.tenant, self.type = request["handler"], request["tenant"], request["type"]
        self.ctx = Ctx()
        # Its global variables are those of its own main module.
        self.module = ModuleType("__main__")
        self.module.__builtins__ = builtins

    def compile(self, field, source):
        filename = f"handler {self.type} {field}"
        lines = io.StringIO(source).readlines()
        linecache.cache[filename] = (len(source), None, lines, filename)  # For traces.
        return function_of(field, source, filename, vars(self.module))


def function_of(field, source, filename, variables):
    """The source as a function. Its statements are moved, not its text, so that lines keep their
    numbers and multi-line strings their spaces."""
    try:
        statements = ast.parse(source, filename).body
    except IndentationError as error:
        if error.msg != "unexpected indent":
            raise
        # All of it may be indented, as in its original file.
        try:
            block = ast.parse(f"if True:\n{source}", filename)
        except SyntaxError as inner:
            inner.lineno -= 1
            raise inner from None
        ast.increment_lineno(block, -1)
        if len(block.body) != 1:
            raise
        statements = block.body[0].body
    # `from __future__` imports must stay outside the function.
    future = [s for s in statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    inside = [s for s in statements if s not in future] or [ast.Pass(lineno=1, col_offset=0)]
    parameters = [ast.arg(arg=name, lineno=1, col_offset=0) for name in PARAMETERS[field]]
    function = ast.FunctionDef(
        name=field,
        args=ast.arguments(
            posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=inside,
        decorator_list=[],
        lineno=1,
        col_offset=0,
    )
    module = ast.fix_missing_locations(ast.Module(body=[*future, function], type_ignores=[]))
    exec(compile(module, filename, "exec", dont_inherit=True), variables)
    made = variables.pop(field)
    if made.__code__.co_flags & 0x2A0:  # A generator or a coroutine would run nothing when called.
        raise SyntaxError("'yield' and 'await' cannot be used outside of a function of your own")
    return made


def load(request):
    number, check = request["handler"], request["check"]
    if not check:
        switch_to(number)
    handler = Handler(request)
    for field in PARAMETERS:
        source = request[field]
        try:
            setattr(handler, field, None if source is None else handler.compile(field, source))
        except BaseException as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if isinstance(line, int) else ""
            message = f"{type(error).__name__}: {getattr(error, 'msg', error)}{where}"
            return failed("load", message, f',"field":"{field}"')
    us = 0
    if not check:
        sys.modules["__main__"] = handler.module
        us, problem = stage(handler.before, handler.ctx)
        if problem is not None:
            return failed("before", problem)
        handlers[number] = handler
    return f'{{"kind":"loaded","handler":{number},"us":{us}}}'


# --- Results -------------------------------------------------------------------------------------


def to_json(value):
    encode = make_encoder({}, no_json, quote, None, ":", ",", False, False, False)
    return "".join(encode(value, 0))


class Refusal(Exception):
    """An invalid outcome: its text is enough, without a trace."""


def is_status(value):
    return isinstance(value, int) and 100 <= value <= 599


def outcome(value):
    """The members of an `end` that describe the outcome."""
    if is_status(value):
        return status_member(value)
    if isinstance(value, dict) and 0 < len(value) == ("status" in value) + ("data" in value):
        status = value.get("status")
        first = '"status":200' if status is None else status_member(status)
        return f'{first},{data_member(value["data"])}' if "data" in value else first
    return f'"status":200,{data_member(value)}'


def status_member(status):
    if is_status(status):
        return f'"status":{int(status)}'
    raise Refusal(f"the status must be a whole number from 100 to 599, not {status!r:.100}")


def data_member(data):
    try:
        text = to_json(data)
        size = len(text.encode())
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise Refusal(f"the result is no JSON value: {told}") from None
    if size > State.result_bytes_max:
        raise Refusal(f"the result has {size} bytes, at most {State.result_bytes_max}")
    return f'"data":{text}'


def failure(thrown):
    status, text = 500, None
    if isinstance(thrown, Refusal):
        text = str(thrown)
    else:
        try:
            status = thrown.status if is_status(thrown.status) else 500
        except BaseException:
            pass
    return f'"status":{int(status)},"error":{quote((text or describe(thrown))[:TEXT_CHARS_MAX])}'


# --- Work ----------------------------------------------------------------------------------------

handlers = {}


class Job(Namespace):
    def __init__(self, handler, entry):
        self.id = entry["id"]
        self.tenant = handler.tenant
        self.type = handler.type
        self.attempt = entry["attempt"]
        self.priority = entry["priority"]
        self.created_at = entry["created_at"]
        self.children = entry.get("children", False)

    def progress(self, percent, message=None):
        if State.running is not self:
            raise RuntimeError("progress: the job has ended")
        is_number = isinstance(percent, (int, float)) and not isinstance(percent, bool)
        if not is_number or not 0 <= percent <= 100:
            raise ValueError("progress: the percentage must be a number from 0 to 100")
        more = "" if message is None else f',"message":{quote(str(message)[:TEXT_CHARS_MAX])}'
        send(f'{{"kind":"progress","nonce":"{State.nonce}","percent":{percent}{more}}}')


def emit_of(job):
    def emit(type, payload, options=None, **more):
        if State.running is not job:
            raise RuntimeError("emit: the job has ended")
        if not isinstance(type, str) or not type:
            raise TypeError("emit: the type must be a text that is not empty")
        if options is not None and not isinstance(options, dict):
            raise TypeError("emit: the options must be a dict")
        if isinstance(payload, (bytes, bytearray, memoryview)):
            member = f'"payload_base64":"{b64encode(payload, newline=False).decode()}"'
        else:
            member = f'"payload":{quote(payload if isinstance(payload, str) else to_json(payload))}'
        options = {**(options or {}), **more}
        rest = f',"options":{to_json(options)}' if options else ""
        frame = f'{{"kind":"emit","nonce":"{State.nonce}","type":{quote(type)},{member}{rest}}}'
        if len(frame.encode()) > FRAME_BYTES_MAX:  # Refuses half a pair of surrogates, too.
            raise ValueError("emit: the payload is too large")
        send(frame)

    return emit


def payload_of(entry):
    payload = entry.get("payload")
    if payload is not None:
        return payload
    if "payload_base64" in entry:
        return b64decode(entry["payload_base64"])
    with open(entry["payload_file"], "rb") as file:
        data = file.read()
    return data.decode() if entry.get("payload_text") else data


def run(request):
    handler = handlers.get(request["handler"])
    if handler is None:
        refuse(65, f"a request names handler {request['handler']}, which is not loaded")
    switch_to(handler.number)
    sys.modules["__main__"] = handler.module
    us, problem = stage(handler.beforeEach, handler.ctx)
    if problem is not None:
        return failed("beforeEach", problem)
    send(f'{{"kind":"begun","us":{us}}}')
    body, ctx, marks = handler.body, handler.ctx, request["mark"]
    look_at = 0
    for entry in request["jobs"]:
        nonce = entry["nonce"]
        # The clock is read after the last answer was written: Windlass relies on that.
        started = now()
        if started >= look_at:
            look_at = started + LOOK_NS
            if pread(5, 1, 0) == b"1":
                send(f'{{"kind":"halted","nonce":"{nonce}"}}')
                break
        job = Job(handler, entry)
        State.running, State.nonce = job, nonce
        try:
            value = body(payload_of(entry), job, ctx, emit_of(job))
            us = (now() - started) // 1000
            how = '"status":200' if value is None else outcome(value)
        except BaseException as error:
            us = (now() - started) // 1000
            how = failure(error)
        State.running = None
        if stdout.buffer._half or stderr.buffer._half:
            settle()
        if marks:
            mark(1)
            mark(2)
        send(f'{{"kind":"end","nonce":"{nonce}",{how},"us":{us}}}')
    us, problem = stage(handler.afterEach, handler.ctx)
    if problem is not None:
        return failed("afterEach", problem)
    return f'{{"kind":"done","us":{us}}}'


def stage(function, ctx):
    if function is None:
        return 0, None
    started = now()
    try:
        function(ctx)
    except BaseException as error:
        return 0, describe(error)
    return (now() - started) // 1000, None


def settle():
    stdout.buffer.settle()
    stderr.buffer.settle()


def mark(descriptor):
    try:
        write_whole(descriptor, State.mark, MARK_TRIES_MAX)
    except OSError:
        pass  # A handler may have closed it. The job is not to blame.


def failed(name, message, more=""):
    message = quote(message[:TEXT_CHARS_MAX])
    return f'{{"kind":"failed","stage":"{name}"{more},"message":{message}}}'


# --- What handlers may have changed globally -----------------------------------------------------

pristine = dict(vars(builtins))
environment, environ = dict(os.environ), os.environ
directory, path, recursion_max = os.getcwd(), [os.getcwd(), *sys.path[1:]], sys.getrecursionlimit()
last = None


def switch_to(number):
    global last
    if last == number:
        return
    last = number
    names = vars(builtins)
    if names != pristine:
        names.clear()
        names.update(pristine)
    os.environ = environ
    if environ != environment:
        for name in list(environ):
            if name not in environment:
                del environ[name]
        environ.update(environment)
    try:
        chdir(directory)
    except OSError:
        pass  # It is gone. A handler that needs it will say so.
    sys.path[:] = path
    sys.setrecursionlimit(recursion_max)
    restore_streams()


# --- Requests ------------------------------------------------------------------------------------


def hello(request):
    if request["protocol"] != PROTOCOL:
        refuse(64, f"this bootstrap speaks protocol {PROTOCOL}, not {request['protocol']}")
    State.mark = f"\0{request['mark']}\n".encode()
    State.result_bytes_max = request["result_bytes_max"]
    version = ".".join(str(part) for part in sys.version_info[:3])
    return f'{{"kind":"ready","protocol":{PROTOCOL},"language":"python {version}"}}'


REQUESTS = {"hello": hello, "load": load, "run": run}


def serve():
    for descriptor in (3, 4, 5):
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=child_of_fork)
    restore_streams()
    requests = open(3, "rb", buffering=262_144, closefd=False)
    while True:
        head = requests.read(4)
        if len(head) < 4:
            break
        length = int.from_bytes(head, "big")
        if not 0 < length <= FRAME_BYTES_MAX:
            refuse(65, f"a request of {length} bytes")
        data = requests.read(length)
        if len(data) < length:
            break
        try:
            request, _ = parse(data.decode(), 0)
            answer = REQUESTS[request["kind"]]
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            refuse(65, f"a request that cannot be read: {error}")
        if State.mark is None and answer is not hello:
            refuse(65, "the first request must be hello")
        State.busy = True
        text = answer(request)
        with speaking:
            settle()
            State.busy = False
            send(text)
    # Threads left behind by a job must not keep the process alive.
    try:
        atexit._run_exitfuncs()
    finally:
        exit_now(0)


if __name__ == "__main__":
    try:
        serve()
    except BaseException as error:  # A signal's, between two jobs; or descriptor 3 was closed.
        refuse(70, describe(error))
