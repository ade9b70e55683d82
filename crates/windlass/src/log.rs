//! The log on standard error: human on a terminal, otherwise one flat JSON object per line. A
//! separate thread writes many lines at once, so that a busy daemon does not pay one system call
//! per line. No line is dropped; a slow reader blocks the daemon only when `BUFFER_BYTES_MAX` are
//! waiting.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as fmt_layer};

use windlass_core::Clock;
use windlass_core::sync::lock;
use windlass_core::time::SystemClock;

use crate::config::{Log, LogFormat};

/// Our own crates; other crates log warnings and errors only.
const OWN_TARGETS: &str = "windlass";
/// Bytes that may wait for the thread; above that, logging blocks.
const BUFFER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A buffer that a burst has grown beyond this is freed.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// Starts the log of this process. Nothing is written before the guard gets the first line; all is
/// written when the guard is dropped.
pub(crate) fn start(log: &Log) -> Guard {
    let terminal = io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    let lines = Lines::default();
    let layer = if json {
        fmt_layer::layer().event_format(JsonLine).with_writer(lines.clone()).boxed()
    } else {
        let layer = fmt_layer::layer().with_target(false).with_timer(UtcTime).with_ansi(terminal);
        layer.with_writer(lines.clone()).boxed()
    };
    let targets =
        Targets::new().with_default(LevelFilter::WARN).with_target(OWN_TARGETS, log.level);
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();
    let buffer = lines.0;
    let for_thread = Arc::clone(&buffer);
    let thread = std::thread::Builder::new()
        .name("log".into())
        .spawn(move || for_thread.write_all_to(&mut io::stderr()))
        .expect("a process that starts can have one more thread");
    Guard { buffer, thread: Some(thread) }
}

/// Holds all lines back until it gets the first one; `drop` waits until all lines are written.
pub(crate) struct Guard {
    buffer: Arc<LogBuffer>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// What `emit` logs becomes the first line, before everything logged until now.
    pub(crate) fn first(&self, emit: impl FnOnce()) {
        self.buffer.lock().first_by = Some(std::thread::current().id());
        emit();
        self.buffer.lock().release();
        self.buffer.changed.notify_all();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut waiting = self.buffer.lock();
        waiting.release();
        waiting.closed = true;
        drop(waiting);
        self.buffer.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

#[derive(Default)]
struct LogBuffer {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines logged before the first line.
    early: Vec<u8>,
    released: bool,
    /// The thread that is logging the first line.
    first_by: Option<ThreadId>,
    closed: bool,
}

impl Waiting {
    fn release(&mut self) {
        self.released = true;
        self.bytes.append(&mut self.early);
    }
}

impl LogBuffer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if !waiting.released && waiting.first_by != Some(std::thread::current().id()) {
            waiting.early.extend_from_slice(line);
            if waiting.early.len() < BUFFER_BYTES_MAX {
                return;
            }
            waiting.release();
            self.changed.notify_all();
            return;
        }
        while waiting.bytes.len() >= BUFFER_BYTES_MAX && !waiting.closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        if was_empty {
            self.changed.notify_all();
        }
    }

    fn write_all_to(&self, out: &mut dyn Write) {
        let mut taken = Vec::new();
        loop {
            let mut waiting = self.lock();
            while waiting.bytes.is_empty() {
                if waiting.closed {
                    return;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut taken, &mut waiting.bytes);
            drop(waiting);
            self.changed.notify_all();
            // If the log cannot be written, nothing can be reported; the daemon continues without
            // it.
            let _ = out.write_all(&taken);
            taken.clear();
            taken.shrink_to(BUFFER_BYTES_KEPT);
        }
    }
}

/// The writer for tracing's formatted lines, one call per line.
#[derive(Clone, Default)]
struct Lines(Arc<LogBuffer>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(SystemClock.now().ms()).unwrap_or_default()
}

struct UtcTime;

impl FormatTime for UtcTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{:.3}", now())
    }
}

/// `{"time":…,"level":…,"target":…, the event's fields…,"message":…}`
struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let target = event.metadata().target();
        write!(writer, r#"{{"time":"{:.3}","level":"{level}","target":"{target}""#, now())?;
        let mut fields = JsonFields { writer, message: String::new(), result: Ok(()) };
        event.record(&mut fields);
        let JsonFields { mut writer, message, result } = fields;
        result?;
        if !message.is_empty() {
            write!(writer, r#","message":{}"#, json_text(&message))?;
        }
        writeln!(writer, "}}")
    }
}

struct JsonFields<'a> {
    writer: Writer<'a>,
    /// Kept for the end of the line.
    message: String,
    result: fmt::Result,
}

impl JsonFields<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // A field named after a Rust keyword arrives as `r#type`.
        let name = field.name().strip_prefix("r#").unwrap_or(field.name());
        if self.result.is_ok() {
            self.result = write!(self.writer, r#","{name}":{value}"#);
        }
    }
}

impl Visit for JsonFields<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        if value.is_finite() {
            self.put(field, format_args!("{value}"));
        } else {
            self.put(field, format_args!("null"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.put(field, format_args!("{}", json_text(value)));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(emit: impl FnOnce()) -> Vec<serde_json::Value> {
        let lines = Lines::default();
        let layer = fmt_layer::layer().event_format(JsonLine).with_writer(lines.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, emit);
        let bytes = std::mem::take(&mut lines.0.lock().early);
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn the_fields_of_an_event_stand_flat_in_its_line() {
        let lines = logged(|| {
            tracing::info!(
                event = "job_ended",
                id = %12,
                r#type = "a\"b\n",
                attempt = 2_u32,
                load = 0.5,
                off = f64::NAN,
                "a job {}",
                "ended"
            );
        });
        let [line] = &lines[..] else { panic!("one line, not {}", lines.len()) };
        assert_eq!(line["event"], "job_ended");
        assert_eq!(line["id"], "12");
        assert_eq!(line["type"], "a\"b\n");
        assert_eq!(line["attempt"], 2);
        assert_eq!(line["load"], 0.5);
        assert!(line["off"].is_null());
        assert_eq!(line["message"], "a job ended");
        assert_eq!(line["level"], "info");
        let time = line["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.len() == "2026-11-15T20:00:00.000Z".len(), "{time}");
    }

    fn released() -> LogBuffer {
        let buffer = LogBuffer::default();
        buffer.lock().release();
        buffer
    }

    #[test]
    fn the_first_line_stands_in_front_of_what_was_logged_before() {
        let buffer = Arc::new(LogBuffer::default());
        buffer.push(b"early\n");
        let guard = Guard { buffer: Arc::clone(&buffer), thread: None };
        guard.first(|| {
            buffer.push(b"first\n");
            std::thread::scope(|scope| {
                scope.spawn(|| buffer.push(b"beside\n"));
            });
        });
        buffer.push(b"later\n");
        assert_eq!(buffer.lock().bytes, b"first\nearly\nbeside\nlater\n");
    }

    #[test]
    fn what_was_logged_before_an_early_end_is_not_lost() {
        let buffer = Arc::new(LogBuffer::default());
        buffer.push(b"early\n");
        drop(Guard { buffer: Arc::clone(&buffer), thread: None });
        assert_eq!(buffer.lock().bytes, b"early\n");
    }

    #[test]
    fn everything_that_was_logged_is_written_before_the_thread_ends() {
        let buffer = released();
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| buffer.write_all_to(&mut out));
            for number in 0..1000 {
                buffer.push(format!("{number}\n").as_bytes());
            }
            buffer.lock().closed = true;
            buffer.changed.notify_all();
            thread.join().unwrap();
        });
        let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn who_logs_more_than_the_buffer_holds_waits_and_loses_nothing() {
        let buffer = released();
        let line = vec![b'x'; BUFFER_BYTES_MAX / 2];
        let mut out = Vec::new();
        std::thread::scope(|scope| {
            let logger = scope.spawn(|| (0..8).for_each(|_| buffer.push(&line)));
            let writer = scope.spawn(|| buffer.write_all_to(&mut out));
            logger.join().unwrap();
            buffer.lock().closed = true;
            buffer.changed.notify_all();
            writer.join().unwrap();
        });
        assert_eq!(out.len(), 8 * line.len());
    }
}
