'use strict';
// The bootstrap of a node context: reads requests from descriptor 3, runs the sources of
// handlers and answers on descriptor 4; descriptor 5 ends a batch early. docs/contexts.md is the
// contract. Handlers run in the same realm and may replace any built-in, so everything
// needed after the first handler has run is saved before.

const fs = require('node:fs');
const { AsyncLocalStorage } = require('node:async_hooks');
const EventEmitter = require('node:events');
const { createRequire } = require('node:module');
const { Socket } = require('node:net');
const { Writable } = require('node:stream');
const { StringDecoder } = require('node:string_decoder');
const { Script, constants } = require('node:vm');
const util = require('node:util');

const PROTOCOL = 1;
const FRAME_BYTES_MAX = 33554432;
const TEXT_CHARS_MAX = 65536;
const SMALL_BYTES = 262144;
const MARK_TRIES_MAX = 1000;
const LOOK_MS = 1; // How long jobs may follow each other without a look at descriptor 5.
const CAUSES_MAX = 8;
const UNCAUGHT = ['uncaughtException', 'unhandledRejection'];
const FIELDS = ['before', 'beforeEach', 'afterEach', 'body'];
const BODY_PARAMETERS = 'payload, job, ctx, emit';

const { parse, stringify } = JSON;
const { keys, defineProperty, getOwnPropertyDescriptor, hasOwn } = Object;
const { ownKeys } = Reflect;
const { floor } = Math;
const { isInteger, isFinite } = Number;
const { isView } = ArrayBuffer;
const { from: bytesOf, allocUnsafe, byteLength, isBuffer } = Buffer;
const { wait } = Atomics;
const { fstatSync, readFileSync, readSync, writeSync } = fs;
const { inspect } = util;
const { isMap, isSet, isAnyArrayBuffer } = util.types;
const { chdir, cwd, nextTick } = process;
const exit = process.exit.bind(process);
const now = performance.now.bind(performance);
const later = setImmediate;
const AsyncFunction = (async () => {}).constructor;

// Methods as functions whose first argument is the object.
const method = (type, name) => Function.prototype.call.bind(type.prototype[name]);
const on = method(EventEmitter, 'on');
const off = method(EventEmitter, 'off');
const then = method(Promise, 'then');
const enter = method(AsyncLocalStorage, 'enterWith');
const entered = method(AsyncLocalStorage, 'getStore');
const slice = method(String, 'slice');
const indexOf = method(String, 'indexOf');
const lastIndexOf = method(String, 'lastIndexOf');
const startsWith = method(String, 'startsWith');
const charCodeAt = method(String, 'charCodeAt');
const toWellFormed = method(String, 'toWellFormed');
const isWellFormed = method(String, 'isWellFormed');
const utf8Write = method(Buffer, 'utf8Write');
const utf8Slice = method(Buffer, 'utf8Slice');
const toText = method(Buffer, 'toString');
const copy = method(Buffer, 'copy');
const decode = method(StringDecoder, 'write');
const decodeRest = method(StringDecoder, 'end');

// --- Answers -------------------------------------------------------------------------------------

const small = Buffer.allocUnsafeSlow(SMALL_BYTES);
const sleeper = new Int32Array(new SharedArrayBuffer(4));

// Another process that shares the descriptor may have made it non-blocking; `tries` bounds waits.
function writeWhole(descriptor, bytes, length, tries) {
  for (let at = 0; at < length; ) {
    try {
      at += writeSync(descriptor, bytes, at, length - at);
    } catch (error) {
      if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
      if (--tries < 0) throw error;
      if (error.code === 'EAGAIN') wait(sleeper, 0, 0, 1);
    }
  }
}

// Frames are assembled by hand: it is faster, and no `toJSON` of a handler can interfere.
function send(json) {
  const bytes = json.length * 3 + 4 <= SMALL_BYTES ? small : allocUnsafe(byteLength(json) + 4);
  const length = utf8Write(bytes, json, 4);
  bytes[0] = length >>> 24;
  bytes[1] = length >>> 16;
  bytes[2] = length >>> 8;
  bytes[3] = length;
  try {
    writeWhole(4, bytes, length + 4, Infinity);
  } catch {
    exit(70); // Nobody listens any more.
  }
}

const quote = (text) => stringify(toWellFormed(text));

// At most what one answer may hold, without half a surrogate pair at the end.
function piece(text, at) {
  const end = at + TEXT_CHARS_MAX;
  const splits = end < text.length && (charCodeAt(text, end - 1) & 0xfc00) === 0xd800;
  return slice(text, at, splits ? end - 1 : end);
}

function refuse(code, why) {
  try {
    writeSync(2, why + '\n');
  } catch {} // A handler may have closed it.
  exit(code);
}

// --- Output --------------------------------------------------------------------------------------

let busy = false; // From a request to its last answer. Otherwise nobody expects frames.

function output(name, descriptor, text) {
  if (!busy) {
    try {
      const bytes = allocUnsafe(byteLength(text));
      writeWhole(descriptor, bytes, utf8Write(bytes, text, 0), MARK_TRIES_MAX);
    } catch {} // What nobody reads is lost.
    return;
  }
  for (let at = 0; at < text.length; ) {
    const part = piece(text, at);
    send('{"kind":"output","stream":"' + name + '","text":' + quote(part) + '}');
    at += part.length;
  }
}

// Replaces process.stdout and process.stderr, which `console` writes to.
class Stream extends Writable {
  #decoder = new StringDecoder('utf8');
  #name;

  constructor(name, fd) {
    super({ decodeStrings: false });
    this.#name = name;
    this.fd = fd;
  }
  _write(chunk, encoding, callback) {
    let text = chunk;
    if (typeof chunk !== 'string' || (encoding !== 'utf8' && encoding !== 'utf-8')) {
      text = decode(this.#decoder, isBuffer(chunk) ? chunk : bytesOf(chunk, encoding));
    }
    if (text !== '') output(this.#name, this.fd, text);
    callback();
  }
  // The standard streams of node cannot be ended either.
  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') return this.end(null, null, chunk);
    if (typeof encoding === 'function') return this.end(chunk, null, encoding);
    if (chunk !== undefined && chunk !== null) this.write(chunk, encoding ?? 'utf8');
    if (callback) nextTick(callback);
    return this;
  }
  destroy() {
    return this;
  }
  // Half a character that no later write will complete.
  static flush(stream) {
    if (stream.#decoder.lastNeed === 0) return;
    const rest = decodeRest(stream.#decoder);
    if (rest !== '') output(stream.#name, stream.fd, rest);
  }
}

const stdout = new Stream('stdout', 1);
const stderr = new Stream('stderr', 2);
const replaceable = { writable: true, enumerable: true, configurable: true };
defineProperty(process, 'stdout', { value: stdout, ...replaceable });
defineProperty(process, 'stderr', { value: stderr, ...replaceable });
process.removeAllListeners('warning');
process.on('warning', ({ name, message }) => {
  const isOurs = indexOf(message, 'USE_MAIN_CONTEXT_DEFAULT_LOADER') >= 0;
  if (!isOurs) output('stderr', 2, name + ': ' + message + '\n');
});

// --- Errors --------------------------------------------------------------------------------------

// Message and trace of whatever was thrown, and of its cause.
function describe(thrown) {
  try {
    let text = '';
    for (let count = 0; count < CAUSES_MAX; count++) {
      if (typeof thrown === 'string') return piece(text + thrown, 0);
      const isObject = thrown !== null && typeof thrown === 'object';
      if (isObject && typeof thrown.stack === 'string') text += handlerFrames(thrown.stack);
      else if (isObject && typeof thrown.message === 'string') text += thrown.message;
      else text += inspect(thrown);
      if (!isObject || thrown.cause === undefined) break;
      text += '\ncaused by ';
      thrown = thrown.cause;
    }
    return piece(text, 0);
  } catch {
    return 'an error that cannot be shown';
  }
}

// A stack without the frames of this file and its callers.
function handlerFrames(text) {
  let kept = '';
  let skipping = false;
  for (let at = 0; at < text.length; ) {
    const found = indexOf(text, '\n', at);
    const end = found < 0 ? text.length : found + 1;
    const line = slice(text, at, end);
    const isFrame = indexOf(line, ' at ') >= 0 && startsWith(line, '    ');
    skipping = isFrame && (skipping || indexOf(line, __filename) >= 0);
    if (!skipping) kept += line;
    at = end;
  }
  return kept[kept.length - 1] === '\n' ? slice(kept, 0, -1) : kept;
}

// An error that belongs to no running work must not fail other work.
function blame(thrown) {
  // Node does not say whose microtask threw. It was queued a moment ago, by what runs now.
  const work = entered(scope) ?? running;
  // Not from within the last resort for errors: what it throws itself ends the process.
  if (work !== null && work === running) later(settle, work, true, thrown);
  else output('stderr', 2, describe(thrown) + '\n');
}

// Handlers may remove them: they are restored, too. The alternative, a capture callback, cannot be
// combined with the module `domain`, which libraries use.
function catchAll() {
  for (let at = 0; at < UNCAUGHT.length; at++) {
    off(process, UNCAUGHT[at], blame);
    on(process, UNCAUGHT[at], blame);
  }
}

catchAll();

// --- Sources -------------------------------------------------------------------------------------

function compile(type, field, source, require) {
  const parameters = field === 'body' ? BODY_PARAMETERS : 'ctx';
  // A method has a name in traces, but does not take that name from the source's own variables.
  // The source starts on the first line, so that its lines keep their numbers.
  const head = '(require => ({async ' + field + '(' + parameters + ') {';
  const script = new Script(head + source + '\n}}).' + field + ')', {
    filename: 'handler ' + type + ' ' + field,
    columnOffset: -head.length,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  try {
    new AsyncFunction(parameters, source);
  } catch {
    throw new SyntaxError("a '}' closes what the source has not opened");
  }
  return script.runInThisContext()(require);
}

// The first line of such an error's stack is the place: `handler mail body:3`.
function describeSyntax(error, source) {
  let lines = 1;
  for (let at = 0; (at = indexOf(source, '\n', at) + 1) > 0; ) lines++;
  const stack = '' + error.stack;
  const place = slice(stack, 0, indexOf(stack, '\n'));
  const line = +slice(place, lastIndexOf(place, ':') + 1);
  const message = error.name + ': ' + error.message;
  if (!startsWith(place, 'handler ') || !isInteger(line)) return message;
  if (line > lines) return 'SyntaxError: Unexpected end of the source (line ' + lines + ')';
  return message + ' (line ' + line + ')';
}

function load(request) {
  const { handler: number, tenant, type, check } = request;
  if (!check) switchTo(number);
  const handler = { number, tenant, type, ctx: {} };
  const require = createRequire(cwd() + '/');
  for (let at = 0; at < FIELDS.length; at++) {
    const field = FIELDS[at];
    const source = request[field];
    try {
      handler[field] = source === null ? null : compile(type, field, source, require);
    } catch (error) {
      fail('load', describeSyntax(error, source), ',"field":"' + field + '"');
      return;
    }
  }
  const loaded = (us) => finish('{"kind":"loaded","handler":' + number + ',"us":' + us + '}');
  if (check) {
    loaded(0);
    return;
  }
  stage(handler, 'before', (us) => {
    handlers[number] = handler;
    loaded(us);
  });
}

// --- Results -------------------------------------------------------------------------------------

class Refusal extends Error {}

function isStatus(value) {
  return isInteger(value) && value >= 100 && value <= 599;
}

// JSON; also an error where JSON.stringify would write `null` for NaN or infinity, or half a
// surrogate pair.
function json(value) {
  if (isView(value) || isMap(value) || isSet(value) || isAnyArrayBuffer(value)) {
    throw new Refusal(value.constructor.name + ' is no JSON value');
  }
  const text = stringify(value);
  if (text === undefined) throw new Refusal('a ' + typeof value + ' is no JSON value');
  if (indexOf(text, 'null') >= 0 || indexOf(text, '\\ud') >= 0) {
    stringify(value, (key, inner) => {
      if (typeof inner === 'number' && !isFinite(inner)) {
        throw new Refusal(inner + ' is no JSON value');
      }
      const isBroken = (typeof inner === 'string' && !isWellFormed(inner)) || !isWellFormed(key);
      if (isBroken) throw new Refusal('a text with half a character is no JSON value');
      return inner;
    });
  }
  return text;
}

// The members of an `end` that describe the outcome.
function outcome(failed, value) {
  try {
    if (failed) return failure(value);
    if (value === undefined || value === null) return '"status":200';
    if (isStatus(value)) return statusMember(value);
    if (typeof value !== 'object') return '"status":200,' + dataMember(value);
    const names = keys(value);
    const has = (name) => names[0] === name || names[1] === name;
    const count = (has('status') ? 1 : 0) + (has('data') ? 1 : 0);
    if (count === 0 || count !== names.length) return '"status":200,' + dataMember(value);
    const status = has('status') ? value.status : undefined;
    const data = has('data') ? value.data : undefined;
    const first = status === undefined || status === null ? '"status":200' : statusMember(status);
    return data === undefined ? first : first + ',' + dataMember(data);
  } catch (error) {
    return failure(error);
  }
}

function statusMember(status) {
  if (isStatus(status)) return '"status":' + status;
  const shown = piece(inspect(status), 0);
  throw new Refusal('the status must be a whole number from 100 to 599, not ' + shown);
}

function dataMember(data) {
  let text;
  try {
    text = json(data);
  } catch (error) {
    const why = error instanceof Refusal ? error.message : describe(error);
    throw new Refusal('the result is no JSON value: ' + why);
  }
  const bytes = byteLength(text);
  if (bytes > resultBytesMax) {
    throw new Refusal('the result has ' + bytes + ' bytes, at most ' + resultBytesMax);
  }
  return '"data":' + text;
}

function failure(thrown) {
  let status = 500;
  try {
    if (thrown instanceof Refusal) return '"status":500,"error":' + quote(piece(thrown.message, 0));
    if (thrown !== null && typeof thrown === 'object') {
      if (isStatus(thrown.status)) status = thrown.status;
    }
  } catch {} // A getter of the handler's that throws is no status.
  return '"status":' + status + ',"error":' + quote(describe(thrown));
}

// --- Work: a job, or one of the other three sources ----------------------------------------------

const scope = new AsyncLocalStorage(); // Tells whose promise was rejected, whose timer threw.
const handlers = { __proto__: null };
let running = null;
let markBytes = null;
let resultBytesMax = 0;

function start(work, source, a, b, c, d) {
  running = work;
  enter(scope, work);
  const returned = (value) => settle(work, false, value);
  then(source(a, b, c, d), returned, (thrown) => settle(work, true, thrown));
}

// The first outcome counts: a job that an exception elsewhere has ended may still return something.
function settle(work, failed, value) {
  if (work !== running) return;
  const us = floor((now() - work.since) * 1000);
  running = null;
  work.ended(us, failed, value);
}

function stage(handler, name, next) {
  if (handler[name] === null) {
    next(0);
    return;
  }
  const ended = (us, failed, thrown) => (failed ? fail(name, describe(thrown), '') : next(us));
  start({ since: now(), ended }, handler[name], handler.ctx);
}

class Batch {
  constructor(handler, jobs, mark) {
    this.handler = handler;
    this.jobs = jobs;
    this.mark = mark;
    this.lookAt = 0;
  }
  next(place) {
    if (place === this.jobs.length) {
      this.end();
      return;
    }
    const { handler } = this;
    const entry = this.jobs[place];
    const work = new JobWork(this, place, entry.nonce);
    if (work.since >= this.lookAt) {
      this.lookAt = work.since + LOOK_MS;
      if (isHalted()) {
        send('{"kind":"halted","nonce":"' + entry.nonce + '"}');
        this.end();
        return;
      }
    }
    let payload;
    try {
      payload = payloadOf(entry);
    } catch (error) {
      running = work;
      later(settle, work, true, error);
      return;
    }
    const job = {
      id: entry.id,
      tenant: handler.tenant,
      type: handler.type,
      attempt: entry.attempt,
      priority: entry.priority,
      created_at: entry.created_at,
      children: entry.children === true,
      progress: (percent, message) => progress(work, percent, message),
    };
    const emitter = (type, value, options) => emit(work, type, value, options);
    start(work, handler.body, payload, job, handler.ctx, emitter);
  }
  end() {
    stage(this.handler, 'afterEach', (us) => {
      if (isDeaf()) exit(70);
      finish('{"kind":"done","us":' + us + '}');
    });
  }
}

class JobWork {
  constructor(batch, place, nonce) {
    this.batch = batch;
    this.place = place;
    this.nonce = nonce;
    this.since = now(); // After the last answer was written: Windlass counts on that.
  }
  ended(us, failed, value) {
    const how = failed || value !== undefined ? outcome(failed, value) : '"status":200';
    Stream.flush(stdout);
    Stream.flush(stderr);
    if (this.batch.mark) {
      mark(1);
      mark(2);
    }
    send('{"kind":"end","nonce":"' + this.nonce + '",' + how + ',"us":' + us + '}');
    this.batch.next(this.place + 1);
  }
}

function mark(descriptor) {
  try {
    writeWhole(descriptor, markBytes, markBytes.length, MARK_TRIES_MAX);
  } catch {} // A handler may have closed it. The job is not to blame.
}

function payloadOf(entry) {
  if (typeof entry.payload === 'string') return entry.payload;
  if (hasOwn(entry, 'payload_base64')) return bytesOf(entry.payload_base64, 'base64');
  return readFileSync(entry.payload_file, entry.payload_text ? { encoding: 'utf8' } : {});
}

function emit(work, type, value, options) {
  if (work !== running) throw new Error('emit: the job has ended');
  if (typeof type !== 'string' || type === '' || !isWellFormed(type)) {
    throw new TypeError('emit: the type must be a text that is not empty');
  }
  if (options !== undefined && options !== null && typeof options !== 'object') {
    throw new TypeError('emit: the options must be an object');
  }
  let payload;
  if (isView(value)) {
    const bytes = bytesOf(value.buffer, value.byteOffset, value.byteLength);
    payload = '"payload_base64":"' + toText(bytes, 'base64') + '"';
  } else {
    const isText = typeof value === 'string' && isWellFormed(value);
    payload = '"payload":' + stringify(isText ? value : json(value));
  }
  const more = options === undefined || options === null ? '' : ',"options":' + json(options);
  const head = '{"kind":"emit","nonce":"' + work.nonce + '","type":' + stringify(type) + ',';
  const frame = head + payload + more + '}';
  if (byteLength(frame) > FRAME_BYTES_MAX) throw new RangeError('emit: the payload is too large');
  send(frame);
}

function progress(work, percent, message) {
  if (work !== running) throw new Error('progress: the job has ended');
  if (!(typeof percent === 'number' && percent >= 0 && percent <= 100)) {
    throw new TypeError('progress: the percentage must be a number from 0 to 100');
  }
  const has = message !== undefined && message !== null;
  const more = has ? ',"message":' + quote(piece(`${message}`, 0)) : '';
  send('{"kind":"progress","nonce":"' + work.nonce + '","percent":' + percent + more + '}');
}

// --- What handlers may have changed globally -----------------------------------------------------

const SHARED = [globalThis, console, JSON, Math, Reflect];
const TYPES = [Object, Function, Array, String, Number, Promise, Date, RegExp, Map, Set, Error];
for (const type of TYPES) SHARED.push(type, type.prototype);
const pristine = SHARED.map(propertiesOf);
// Node itself keeps changing values in `process`, but not its functions and these three.
const pristineProcess = propertiesOf(process).filter(
  ({ name, was }) => typeof was.value === 'function' || ['stdout', 'stderr', 'env'].includes(name),
);
const { env } = process;
const environment = { __proto__: null, ...env };
const directory = cwd();
let last = null;

function propertiesOf(object) {
  const properties = [];
  const names = ownKeys(object);
  for (let at = 0; at < names.length; at++) {
    properties[at] = { name: names[at], was: getOwnPropertyDescriptor(object, names[at]) };
  }
  return properties;
}

function putBack(object, properties) {
  for (let at = 0; at < properties.length; at++) {
    const { name, was } = properties[at];
    const is = getOwnPropertyDescriptor(object, name);
    if (is && is.value === was.value && is.get === was.get && is.set === was.set) continue;
    try {
      defineProperty(object, name, was);
    } catch {} // A handler has frozen it. There is nothing to be done.
  }
}

function removeNew(object, properties) {
  const names = ownKeys(object);
  if (names.length === properties.length) return;
  const known = { __proto__: null };
  for (let at = 0; at < properties.length; at++) known[properties[at].name] = true;
  for (let at = 0; at < names.length; at++) if (!known[names[at]]) delete object[names[at]];
}

function switchTo(number) {
  if (last === number) return;
  const isFirst = last === null;
  last = number;
  if (isFirst) return;
  for (let at = 0; at < SHARED.length; at++) {
    putBack(SHARED[at], pristine[at]);
    removeNew(SHARED[at], pristine[at]);
  }
  putBack(process, pristineProcess);
  catchAll();
  delete stdout.write;
  delete stderr.write;
  const names = keys(env);
  for (let at = 0; at < names.length; at++) {
    if (!(names[at] in environment)) delete env[names[at]];
  }
  for (const name in environment) {
    if (env[name] !== environment[name]) env[name] = environment[name];
  }
  try {
    chdir(directory);
  } catch {} // It is gone. A handler that needs it will say so.
}

// --- Requests ------------------------------------------------------------------------------------

function finish(json) {
  enter(scope, undefined);
  Stream.flush(stdout);
  Stream.flush(stderr);
  busy = false;
  send(json);
  take();
}

function fail(name, message, more) {
  const told = quote(piece(message, 0));
  finish('{"kind":"failed","stage":"' + name + '"' + more + ',"message":' + told + '}');
}

function run(request) {
  const handler = handlers[request.handler];
  if (handler === undefined) refuse(65, 'handler ' + request.handler + ' is not loaded');
  switchTo(request.handler);
  stage(handler, 'beforeEach', (us) => {
    send('{"kind":"begun","us":' + us + '}');
    new Batch(handler, request.jobs, request.mark).next(0);
  });
}

function hello(request) {
  if (request.protocol !== PROTOCOL) {
    refuse(64, 'this bootstrap speaks protocol ' + PROTOCOL + ', not ' + request.protocol);
  }
  markBytes = bytesOf('\0' + request.mark + '\n');
  resultBytesMax = request.result_bytes_max;
  const language = 'node ' + process.versions.node;
  finish('{"kind":"ready","protocol":' + PROTOCOL + ',"language":"' + language + '"}');
}

// Unused input is between `from` and `to`.
let held = allocUnsafe(SMALL_BYTES);
let from = 0;
let to = 0;
let atEnd = false;

function receive(bytes) {
  if (to + bytes.length > held.length) {
    const room = to - from + bytes.length;
    const larger = room > held.length / 2 ? allocUnsafe(room * 2) : held;
    copy(held, larger, 0, from, to);
    held = larger;
    to -= from;
    from = 0;
  }
  copy(bytes, held, to);
  to += bytes.length;
  if (!busy) take();
}

// Starts the next request, if it is complete.
function take() {
  const length = to - from < 4 ? 0 : headAt(from);
  if (to - from < 4 + length || to - from < 4) {
    if (atEnd) exit(0);
    return;
  }
  let request;
  try {
    request = parse(utf8Slice(held, from + 4, from + 4 + length));
  } catch (error) {
    refuse(65, 'a request that is no JSON: ' + error.message);
  }
  from += 4 + length;
  if (from === to) {
    from = to = 0;
    if (held.length > 4 * SMALL_BYTES) held = allocUnsafe(SMALL_BYTES);
  }
  busy = true;
  if (markBytes === null && request.kind !== 'hello') refuse(65, 'the first request must be hello');
  if (request.kind === 'run') run(request);
  else if (request.kind === 'load') load(request);
  else if (request.kind === 'hello') hello(request);
  else refuse(65, 'a request of kind ' + request.kind);
}

// If a handler closed descriptor 3, we would wait for ever, and other jobs with us.
const inode = fstatSync(3).ino;

function isDeaf() {
  try {
    return fstatSync(3).ino !== inode;
  } catch {
    return true;
  }
}

const cell = allocUnsafe(1);

// Whether the batch ends here. It costs a system call.
function isHalted() {
  try {
    readSync(5, cell, 0, 1, 0);
  } catch {
    exit(70);
  }
  return cell[0] === 49;
}

function headAt(at) {
  const length = held[at] * 0x1000000 + ((held[at + 1] << 16) | (held[at + 2] << 8) | held[at + 3]);
  if (length === 0 || length > FRAME_BYTES_MAX) refuse(65, 'a request of ' + length + ' bytes');
  return length;
}

// While it reads, node does not exit, even if a job waits for something that never comes.
const input = new Socket({
  fd: 3,
  readable: true,
  writable: false,
  onread: {
    buffer: allocUnsafe(SMALL_BYTES),
    callback(length, buffer) {
      receive(buffer.subarray(0, length));
      return true;
    },
  },
});
input.on('error', () => exit(0));
input.on('end', () => {
  atEnd = true;
  if (!busy) take();
});
input.resume();
