<?php
// The bootstrap of a php context: it takes requests from descriptor 3, runs the sources of handlers
// and answers on descriptor 4. docs/contexts.md is the contract. Everything lives in classes, because
// global variables belong to handlers.

/** What `$job` is: properties, `[]` for the same, and `progress`. */
final class WindlassJob implements ArrayAccess
{
    public function __construct(
        public $id, public $tenant, public $type, public $attempt, public $priority, public $created_at
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

/** An outcome that is no outcome: its text is enough, nobody needs a trace. */
final class WindlassRefusal extends Exception
{
}

/** What is written to STDOUT and STDERR goes this way, and no further. */
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

/** Sources are included as files of this scheme: so errors name them, with their own lines. */
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
    private const PARAMETERS = [
        'before' => '$ctx',
        'beforeEach' => '$ctx',
        'afterEach' => '$ctx',
        'body' => '$payload, $job, $ctx, $emit',
    ];
    private const STRICT = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES
        | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
    private const LENIENT = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE;

    private static $requests;
    private static $answers;
    private static int $process;
    private static string $held = '';
    private static bool $busy = false; // From a request to its last answer. Otherwise nobody expects frames.
    private static ?array $loading = null; // The number of the handler and the field that is compiled now.
    private static ?WindlassJob $running = null;
    private static ?string $mark = null;
    private static int $resultBytesMax = 0;
    private static array $handlers = [];
    private static ?int $last = null;
    private static array $pristine;

    // --- Answers ---------------------------------------------------------------------------------

    /** Whoever shares a descriptor may have made it non-blocking; `tries` bounds the waits for room. */
    private static function writeWhole($stream, string $bytes, int $tries): bool
    {
        while (true) {
            $written = @fwrite($stream, $bytes);
            if ($written === strlen($bytes)) {
                return true;
            }
            if ($written === false || $written === 0) {
                $why = error_get_last()['message'] ?? '';
                $isPassing = !str_contains($why, 'errno=') || preg_match('/errno=(4|11) /', $why);
                if (!$isPassing || --$tries < 0) {
                    return false;
                }
                usleep(1000);
                continue;
            }
            $bytes = substr($bytes, $written);
        }
    }

    private static function send(string $json): void
    {
        $bytes = pack('N', strlen($json)) . $json;
        if (@fwrite(self::$answers, $bytes) === strlen($bytes)) {
            return;
        }
        self::stop(70);
    }
}
