<?php
// The bootstrap of a php context: reads requests from descriptor 3, runs the sources of handlers
// and answers on descriptor 4; descriptor 5 ends a batch early. docs/contexts.md is the contract.
// Everything is in classes, because global variables belong to handlers.

/** `$job`: properties, `[]` for the same, and `progress`. */
final class WindlassJob implements ArrayAccess
{
    public function __construct(
        public $id,
        public $tenant,
        public $type,
        public $attempt,
        public $priority,
        public $created_at,
        public $children,
    ) {
    }

    public function progress($percent, $message = null): void
    {
        WindlassContext::progress($this, $percent, $message);
    }

    public function offsetExists(mixed $name): bool
    {
        return isset($this->$name);
    }

    public function offsetGet(mixed $name): mixed
    {
        return $this->$name;
    }

    public function offsetSet(mixed $name, mixed $value): void
    {
        $this->$name = $value;
    }

    public function offsetUnset(mixed $name): void
    {
        unset($this->$name);
    }
}

/** An invalid outcome: its text is enough, without a trace. */
final class WindlassRefusal extends Exception
{
}

/** Receives everything written to STDOUT and STDERR. */
final class WindlassFilter extends php_user_filter
{
    public function filter($in, $out, &$consumed, bool $closing): int
    {
        while ($bucket = stream_bucket_make_writeable($in)) {
            $consumed += $bucket->datalen;
            WindlassContext::output($this->params, $bucket->data);
        }
        return PSFS_FEED_ME;
    }
}

/** Sources are included as files of this scheme, so that errors name them with their own lines. */
final class WindlassSource
{
    public static string $text = '';
    public $context;
    private int $at = 0;

    public function stream_open(): bool
    {
        return true;
    }

    public function stream_read(int $count): string
    {
        $part = substr(self::$text, $this->at, $count);
        $this->at += strlen($part);
        return $part;
    }

    public function stream_eof(): bool
    {
        return $this->at >= strlen(self::$text);
    }

    public function stream_stat(): array
    {
        return ['size' => strlen(self::$text)];
    }

    public function stream_set_option(): bool
    {
        return false;
    }
}

final class WindlassContext
{
    private const PROTOCOL = 1;
    private const FRAME_BYTES_MAX = 33554432;
    private const TEXT_BYTES_MAX = 65536;
    private const TRIES_MAX = 1000;
    private const ERRORS_MAX = 3;
    /** How long jobs may follow each other without reading descriptor 5. */
    private const LOOK_NS = 1000000;
    private const BUFFERS = ['WindlassContext::text'];
    private const NO_HALF = [1 => '', 2 => ''];
    private const PARAMETERS = [
        'before' => '$ctx',
        'beforeEach' => '$ctx',
        'afterEach' => '$ctx',
        'body' => '$payload, $job, $ctx, $emit',
    ];
    private const STRICT = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES
        | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
    private const LENIENT = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES
        | JSON_INVALID_UTF8_SUBSTITUTE;

    private static $requests;
    private static $answers;
    private static $halt;
    private static array $descriptors;
    /** The beginnings of incomplete characters. */
    private static array $half = self::NO_HALF;
    private static int $process;
    private static string $held = '';
    /** True from a request to its last answer. Otherwise no frames are expected. */
    private static bool $busy = false;
    /** The field being compiled, and its source. */
    private static ?array $loading = null;
    private static ?WindlassJob $running = null;
    /** What Windlass knows the answers of the running job by. */
    private static string $nonce = '';
    private static ?string $mark = null;
    private static int $resultBytesMax = 0;
    private static array $handlers = [];
    private static ?int $last = null;
    private static array $pristine;

    // --- Answers ---------------------------------------------------------------------------------

    /**
     * Another process that shares the descriptor may have made it non-blocking: `tries` bounds the
     * waits. An interrupting signal looks like an error, but does not repeat forever.
     */
    private static function writeWhole($stream, string $bytes, int $tries): bool
    {
        $errors = 0;
        while (($written = @fwrite($stream, $bytes)) !== strlen($bytes)) {
            if ($written) {
                $bytes = substr($bytes, $written);
            } elseif (--$tries < 0 || ($written === false && ++$errors > self::ERRORS_MAX)) {
                return false;
            } else {
                usleep(1000);
            }
        }
        return true;
    }

    private static function send(string $json): void
    {
        // A child that a handler forked takes no part in the protocol.
        if (getmypid() !== self::$process) {
            exit(70);
        }
        if (!self::writeWhole(self::$answers, pack('N', strlen($json)) . $json, PHP_INT_MAX)) {
            self::$busy = false;
            exit(70); // Nobody listens any more.
        }
    }

    private static function refuse(int $code, string $why): never
    {
        self::$busy = false;
        self::writeWhole(self::$descriptors[2], "$why\n", self::TRIES_MAX);
        exit($code);
    }

    private static function quote(string $text): string
    {
        return json_encode(self::cut($text), self::LENIENT);
    }

    /** At most what an answer may hold, without half a character at the end. */
    private static function cut(string $text): string
    {
        $isLong = strlen($text) > self::TEXT_BYTES_MAX;
        return $isLong ? self::whole(substr($text, 0, self::TEXT_BYTES_MAX)) : $text;
    }

    /** The text without an incomplete character at its end. */
    private static function whole(string $text): string
    {
        $length = strlen($text);
        for ($back = 1; $back <= 3 && $back <= $length; $back++) {
            $byte = ord($text[$length - $back]);
            if ($byte < 0x80) {
                return $text;
            }
            if ($byte >= 0xC0) {
                $size = $byte >= 0xF0 ? 4 : ($byte >= 0xE0 ? 3 : 2);
                return $size > $back ? substr($text, 0, -$back) : $text;
            }
        }
        return $text;
    }

    // --- Output ----------------------------------------------------------------------------------

    public static function output(int $descriptor, string $data): void
    {
        if (!self::$busy || getmypid() !== self::$process) {
            self::writeWhole(self::$descriptors[$descriptor], $data, self::TRIES_MAX);
            return;
        }
        $text = self::$half[$descriptor] . $data;
        $whole = self::whole($text);
        self::$half[$descriptor] = substr($text, strlen($whole));
        self::sendText($descriptor, $whole);
    }

    private static function sendText(int $descriptor, string $text): void
    {
        $stream = $descriptor === 1 ? 'stdout' : 'stderr';
        while ($text !== '') {
            $part = self::cut($text);
            $text = substr($text, strlen($part));
            $json = self::quote($part);
            self::send('{"kind":"output","stream":"' . $stream . '","text":' . $json . '}');
        }
    }

    /** Receives what `echo` writes. With a buffer of one byte, php flushes it at once. */
    public static function text(string $text): string
    {
        if ($text !== '') {
            self::output(1, $text);
        }
        return '';
    }

    /** Closes buffers that a source has left open; reopens ours if it was closed. */
    private static function settle(): void
    {
        for ($left = ob_get_level(); $left > 0 && ob_list_handlers() !== self::BUFFERS; $left--) {
            try {
                @ob_end_flush();
            } catch (Throwable $error) {
                self::output(2, self::describe($error) . "\n");
            }
        }
        if (ob_get_level() === 0) {
            ob_start([self::class, 'text'], 1);
        }
        foreach (self::$half as $descriptor => $rest) {
            self::$half[$descriptor] = '';
            self::sendText($descriptor, $rest);
        }
    }

    public static function warn(int $level, string $message, string $file, int $line): bool
    {
        if (!(error_reporting() & $level)) {
            return false;
        }
        if ($level === E_USER_ERROR) { // Would end the process, for what is one job's error.
            throw new ErrorException($message, 0, $level, $file, $line);
        }
        $name = match ($level) {
            E_WARNING, E_USER_WARNING => 'Warning',
            E_NOTICE, E_USER_NOTICE => 'Notice',
            E_DEPRECATED, E_USER_DEPRECATED => 'Deprecated',
            default => 'Error',
        };
        self::output(2, "$name: $message in $file on line $line\n");
        return true;
    }

    // --- Errors ----------------------------------------------------------------------------------

    /** Message and trace, without the frames of this file that lead to the handler. */
    private static function describe(Throwable $error): string
    {
        $text = '';
        for ($next = $error; $next !== null; $next = $next->getPrevious()) {
            $text .= ($text === '' ? '' : "\ncaused by ") . get_class($next) . ': ';
            $text .= $next->getMessage() . "\n    at " . $next->getFile() . ':' . $next->getLine();
            foreach ($next->getTrace() as $frame) {
                if (($frame['file'] ?? '') === __FILE__ || strlen($text) > self::TEXT_BYTES_MAX) {
                    break;
                }
                if (($frame['class'] ?? '') === self::class) {
                    continue;
                }
                $text .= "\n    at " . ($frame['file'] ?? '[php]') . ':' . ($frame['line'] ?? 0);
                $class = ($frame['class'] ?? '') . ($frame['type'] ?? '');
                $text .= " $class{$frame['function']}()";
            }
        }
        return $text;
    }

    /** Runs when the process ends: php's compiler ends it on some errors, instead of throwing. */
    public static function shutdown(): void
    {
        if (self::$loading !== null && getmypid() === self::$process) {
            [$field, $source] = self::$loading;
            $error = error_get_last() ?? ['message' => 'the compiler has ended', 'line' => 1];
            $message = 'Fatal error: ' . self::withLine($error['message'], $error['line'], $source);
            self::send(self::failed('load', $message, ',"field":"' . $field . '"'));
            self::$busy = false;
        }
    }

    private static function failed(string $stage, string $message, string $more = ''): string
    {
        $json = self::quote($message);
        return '{"kind":"failed","stage":"' . $stage . '"' . $more . ',"message":' . $json . '}';
    }

    // --- Sources ---------------------------------------------------------------------------------

    private static function withLine(string $message, int $line, string $source): string
    {
        return $message . ' (line ' . min($line, substr_count($source, "\n") + 1) . ')';
    }

    /**
     * The source as a file that returns a function. The function starts on the line of the source's
     * first statement, so that all lines keep their numbers; what php allows only outside functions
     * (`use`, `namespace`, `declare`) stays in front of it.
     */
    private static function wrap(string $source, string $parameters): string
    {
        $source = preg_replace('/^(\s*)<\?php(?=\s|$)/', '$1', $source);
        [$begin, $depth, $isHead, $isHtml] = [0, 0, true, false];
        $tokens = PhpToken::tokenize('<?php ' . $source);
        for ($at = 1; $at < count($tokens); $at++) {
            $token = $tokens[$at];
            if ($isHead && $token->is([T_USE, T_NAMESPACE, T_DECLARE])) {
                while ($at < count($tokens) && $tokens[$at]->text !== ';') {
                    $at++;
                }
                $begin = $at < count($tokens) ? $tokens[$at]->pos + 1 - strlen('<?php ') : $begin;
                continue;
            }
            $isHead = $isHead && $token->isIgnorable();
            $isHtml = $token->is([T_INLINE_HTML, T_CLOSE_TAG]);
            $opens = $token->is(['{', T_CURLY_OPEN, T_DOLLAR_OPEN_CURLY_BRACES]);
            $depth += $opens ? 1 : ($token->is('}') ? -1 : 0);
            if ($depth < 0) { // Would end our function, not one of the source's.
                throw new WindlassRefusal("ParseError: Unmatched '}' (line {$token->line})");
            }
        }
        return '<?php ' . substr($source, 0, $begin) . 'return function (' . $parameters . ') {'
            . substr($source, $begin) . ($isHtml ? '<?php };' : "\n};");
    }

    private static function compile(string $type, string $field, string $source): Closure
    {
        self::$loading = [$field, $source];
        try {
            WindlassSource::$text = self::wrap($source, self::PARAMETERS[$field]);
            return windlass_include("handler://$type/$field");
        } catch (ParseError $error) {
            throw new WindlassRefusal(
                'ParseError: ' . self::withLine($error->getMessage(), $error->getLine(), $source)
            );
        } finally {
            self::$loading = null;
        }
    }

    private static function load(array $request): string
    {
        $number = $request['handler'];
        if (!$request['check']) {
            self::switchTo($number);
        }
        ['tenant' => $tenant, 'type' => $type] = $request;
        $handler = ['tenant' => $tenant, 'type' => $type, 'ctx' => new stdClass()];
        foreach (self::PARAMETERS as $field => $_) {
            $source = $request[$field];
            try {
                $handler[$field] = $source === null ? null : self::compile($type, $field, $source);
            } catch (Throwable $error) {
                $isOurs = $error instanceof WindlassRefusal;
                $message = $isOurs ? $error->getMessage() : self::describe($error);
                return self::failed('load', $message, ',"field":"' . $field . '"');
            }
        }
        $us = 0;
        if (!$request['check']) {
            $problem = self::stage($handler['before'], $handler['ctx'], $us);
            if ($problem !== null) {
                return self::failed('before', $problem);
            }
            self::$handlers[$number] = $handler;
        }
        return '{"kind":"loaded","handler":' . $number . ',"us":' . $us . '}';
    }

    // --- Results ---------------------------------------------------------------------------------

    /** The members of an `end` that describe the outcome. */
    private static function outcome(mixed $value): string
    {
        if (self::isStatus($value)) {
            return self::statusMember($value);
        }
        $parts = $value instanceof stdClass ? (array) $value : $value;
        if (is_array($parts) && $parts !== []) {
            $hasData = array_key_exists('data', $parts);
            $hasStatus = array_key_exists('status', $parts);
            if (count($parts) === (int) $hasStatus + (int) $hasData) {
                $first = self::statusMember($parts['status'] ?? 200);
                return $hasData ? $first . ',' . self::dataMember($parts['data']) : $first;
            }
        }
        return '"status":200,' . self::dataMember($value);
    }

    private static function isStatus(mixed $value): bool
    {
        return is_int($value) && $value >= 100 && $value <= 599;
    }

    private static function statusMember(mixed $status): string
    {
        if (self::isStatus($status)) {
            return '"status":' . $status;
        }
        $shown = is_scalar($status) ? var_export($status, true) : get_debug_type($status);
        throw new WindlassRefusal("the status must be a whole number from 100 to 599, not $shown");
    }

    private static function dataMember(mixed $data): string
    {
        try {
            $text = json_encode($data, self::STRICT);
        } catch (Throwable $error) {
            throw new WindlassRefusal('the result is no JSON value: ' . $error->getMessage());
        }
        $bytes = strlen($text);
        if ($bytes > self::$resultBytesMax) {
            $most = self::$resultBytesMax;
            throw new WindlassRefusal("the result has $bytes bytes, at most $most");
        }
        return '"data":' . $text;
    }

    private static function failure(Throwable $error): string
    {
        if ($error instanceof WindlassRefusal) {
            return '"status":500,"error":' . self::quote($error->getMessage());
        }
        $status = null;
        try {
            $status = $error->status ?? null;
        } catch (Throwable) {
            // A getter that throws gives no status.
        }
        $status = self::isStatus($status) ? $status : 500;
        return '"status":' . $status . ',"error":' . self::quote(self::describe($error));
    }

    // --- Work ------------------------------------------------------------------------------------

    private static function stage(?Closure $source, stdClass $ctx, int &$us): ?string
    {
        if ($source === null) {
            return null;
        }
        $started = hrtime(true);
        try {
            $source($ctx);
            $us = intdiv(hrtime(true) - $started, 1000);
            return null;
        } catch (Throwable $error) {
            return self::describe($error);
        } finally {
            self::settle();
        }
    }

    private static function run(array $request): string
    {
        $handler = self::$handlers[$request['handler']] ?? null;
        if ($handler === null) {
            self::refuse(65, "a request names handler {$request['handler']}, which is not loaded");
        }
        self::switchTo($request['handler']);
        ['tenant' => $tenant, 'type' => $type, 'ctx' => $ctx, 'body' => $body] = $handler;
        $us = 0;
        $problem = self::stage($handler['beforeEach'], $ctx, $us);
        if ($problem !== null) {
            return self::failed('beforeEach', $problem);
        }
        self::send('{"kind":"begun","us":' . $us . '}');
        $lookAt = 0;
        foreach ($request['jobs'] as $entry) {
            $nonce = $entry['nonce'];
            // The clock is read after the last answer was written: Windlass relies on that.
            $started = hrtime(true);
            if ($started >= $lookAt) {
                $lookAt = $started + self::LOOK_NS;
                if (self::isHalted()) {
                    self::send('{"kind":"halted","nonce":"' . $nonce . '"}');
                    break;
                }
            }
            ['id' => $id, 'attempt' => $attempt, 'priority' => $priority] = $entry;
            $at = $entry['created_at'];
            $children = $entry['children'] ?? false;
            $job = new WindlassJob($id, $tenant, $type, $attempt, $priority, $at, $children);
            $emit = static function ($type, $payload, $options = null) use ($job): void {
                self::emit($job, $type, $payload, $options);
            };
            self::$running = $job;
            self::$nonce = $nonce;
            try {
                $value = $body($entry['payload'] ?? self::payload($entry), $job, $ctx, $emit);
                $us = intdiv(hrtime(true) - $started, 1000);
                $how = $value === null ? '"status":200' : self::outcome($value);
            } catch (Throwable $error) {
                $us = intdiv(hrtime(true) - $started, 1000);
                $how = self::failure($error);
                unset($error);
            }
            self::$running = null;
            if (self::$half !== self::NO_HALF || ob_list_handlers() !== self::BUFFERS) {
                self::settle();
            }
            if ($request['mark']) {
                self::writeWhole(self::$descriptors[1], self::$mark, self::TRIES_MAX);
                self::writeWhole(self::$descriptors[2], self::$mark, self::TRIES_MAX);
            }
            self::send('{"kind":"end","nonce":"' . $nonce . '",' . $how . ',"us":' . $us . '}');
            unset($value);
        }
        $us = 0;
        $problem = self::stage($handler['afterEach'], $ctx, $us);
        $done = '{"kind":"done","us":' . $us . '}';
        return $problem === null ? $done : self::failed('afterEach', $problem);
    }

    /** Whether the batch ends here. It costs two system calls. */
    private static function isHalted(): bool
    {
        return rewind(self::$halt) && fread(self::$halt, 1) === '1';
    }

    private static function payload(array $entry): string
    {
        if (isset($entry['payload_base64'])) {
            return base64_decode($entry['payload_base64']);
        }
        $payload = @file_get_contents($entry['payload_file']);
        if ($payload === false) {
            throw new RuntimeException('the payload cannot be read');
        }
        return $payload;
    }

    private static function emit(WindlassJob $job, $type, $payload, $options): void
    {
        if (self::$running !== $job) {
            throw new LogicException('emit: the job has ended');
        }
        if (!is_string($type) || $type === '') {
            throw new TypeError('emit: the type must be a text that is not empty');
        }
        $frame = ['kind' => 'emit', 'nonce' => self::$nonce, 'type' => $type];
        if (!is_string($payload)) {
            $frame['payload'] = json_encode($payload, self::STRICT);
        } elseif (preg_match('//u', $payload)) {
            $frame['payload'] = $payload;
        } else {
            $frame['payload_base64'] = base64_encode($payload);
        }
        if ($options !== null && !is_array($options) && !$options instanceof stdClass) {
            throw new TypeError('emit: the options must be an array');
        }
        if ($options !== null) {
            $frame['options'] = (object) $options;
        }
        $json = json_encode($frame, self::STRICT);
        if (strlen($json) > self::FRAME_BYTES_MAX) {
            throw new LengthException('emit: the payload is too large');
        }
        self::send($json);
    }

    public static function progress(WindlassJob $job, $percent, $message): void
    {
        if (self::$running !== $job) {
            throw new LogicException('progress: the job has ended');
        }
        if (!(is_int($percent) || is_float($percent)) || !($percent >= 0 && $percent <= 100)) {
            throw new ValueError('progress: the percentage must be a number from 0 to 100');
        }
        $more = $message === null ? '' : ',"message":' . self::quote((string) $message);
        $head = '{"kind":"progress","nonce":"' . self::$nonce . '","percent":';
        self::send($head . json_encode($percent) . $more . '}');
    }

    // --- What handlers may have changed globally -------------------------------------------------

    private static function shared(): array
    {
        $globals = [];
        foreach ($GLOBALS as $name => $value) {
            $globals[$name] = $value;
        }
        return [
            'globals' => $globals,
            'environment' => getenv(),
            'settings' => ini_get_all(null, false),
            'directory' => getcwd(),
            'zone' => date_default_timezone_get(),
            'locale' => setlocale(LC_ALL, '0'),
        ];
    }

    private static function switchTo(int $number): void
    {
        if (self::$last === $number) {
            return;
        }
        $isFirst = self::$last === null;
        self::$last = $number;
        if ($isFirst) {
            return;
        }
        [$was, $is] = [self::$pristine, self::shared()];
        foreach (array_diff_key($is['globals'], $was['globals']) as $name => $_) {
            unset($GLOBALS[$name]);
        }
        foreach ($was['globals'] as $name => $value) {
            $GLOBALS[$name] = $value;
        }
        foreach (array_diff_key($is['environment'], $was['environment']) as $name => $_) {
            putenv($name);
        }
        foreach (array_diff_assoc($was['environment'], $is['environment']) as $name => $value) {
            putenv("$name=$value");
        }
        foreach ($was['settings'] as $name => $value) {
            if ($value !== $is['settings'][$name]) {
                @ini_set($name, (string) $value);
            }
        }
        @chdir($was['directory']); // If it is gone, a handler that needs it will say so.
        date_default_timezone_set($was['zone']);
        setlocale(LC_ALL, $was['locale']);
        set_error_handler([self::class, 'warn']);
    }

    // --- Requests --------------------------------------------------------------------------------

    private static function hello(array $request): string
    {
        if ($request['protocol'] !== self::PROTOCOL) {
            $ours = self::PROTOCOL;
            self::refuse(64, "this bootstrap speaks protocol $ours, not {$request['protocol']}");
        }
        self::$mark = "\0{$request['mark']}\n";
        self::$resultBytesMax = $request['result_bytes_max'];
        $language = 'php ' . PHP_VERSION;
        return '{"kind":"ready","protocol":' . self::PROTOCOL . ',"language":"' . $language . '"}';
    }

    /** The next bytes of this number, or null at the end. */
    private static function receive(int $count): ?string
    {
        while (strlen(self::$held) < $count) {
            $part = fread(self::$requests, 65536);
            if (($part === '' || $part === false) && feof(self::$requests)) {
                return null;
            }
            self::$held .= $part;
        }
        $bytes = substr(self::$held, 0, $count);
        self::$held = substr(self::$held, $count);
        return $bytes;
    }

    public static function serve(): void
    {
        ini_set('display_errors', 'stderr');
        ini_set('log_errors', '0'); // Would say the same once more.
        self::$process = getmypid();
        self::$requests = fopen('php://fd/3', 'rb');
        self::$answers = fopen('php://fd/4', 'wb');
        self::$descriptors = [1 => fopen('php://fd/1', 'wb'), 2 => fopen('php://fd/2', 'wb')];
        self::$halt = fopen('php://fd/5', 'rb');
        stream_set_read_buffer(self::$requests, 0);
        stream_set_read_buffer(self::$halt, 0);
        self::closeOnExec();
        stream_wrapper_register('handler', 'WindlassSource');
        stream_filter_register('windlass', 'WindlassFilter');
        stream_filter_append(STDOUT, 'windlass', STREAM_FILTER_WRITE, 1);
        stream_filter_append(STDERR, 'windlass', STREAM_FILTER_WRITE, 2);
        set_error_handler([self::class, 'warn']);
        register_shutdown_function([self::class, 'shutdown']);
        ob_start([self::class, 'text'], 1);
        self::$pristine = self::shared();
        while (($head = self::receive(4)) !== null) {
            $length = unpack('N', $head)[1];
            if ($length === 0 || $length > self::FRAME_BYTES_MAX) {
                self::refuse(65, "a request of $length bytes");
            }
            if (($data = self::receive($length)) === null) {
                break;
            }
            $request = json_decode($data, true);
            $kind = $request['kind'] ?? '';
            if (self::$mark === null && $kind !== 'hello') {
                self::refuse(65, 'the first request must be hello');
            }
            self::$busy = true;
            $answer = match ($kind) {
                'hello' => self::hello($request),
                'load' => self::load($request),
                'run' => self::run($request),
                default => self::refuse(65, "a request of kind $kind"),
            };
            self::$busy = false;
            self::send($answer);
        }
        exit(0);
    }

    /** Keeps the descriptors from programs that handlers start. Php has no function for it. */
    private static function closeOnExec(): void
    {
        try {
            $libc = FFI::cdef('int fcntl(int, int, ...);');
            foreach (range(3, 15) as $descriptor) {
                $libc->fcntl($descriptor, 2, 1); // F_SETFD, FD_CLOEXEC
            }
        } catch (Throwable) {
            // Not every php has FFI. Without it, programs inherit them.
        }
    }
}

/** Outside the class, so that sources have no access to it. */
function windlass_include(string $path): Closure
{
    return include $path;
}

// Php's own `error_log` bypasses its streams. A flag disables it, so that this replaces it.
if (!function_exists('error_log')) {
    function error_log(string $message, int $message_type = 0, ?string $destination = null): bool
    {
        if ($message_type === 3) {
            return file_put_contents($destination, $message, FILE_APPEND) !== false;
        }
        WindlassContext::output(2, "$message\n");
        return true;
    }
}

WindlassContext::serve();
