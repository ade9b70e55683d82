//! The log in jobd's format: lines with local time, coloured on the console, and in a file that is
//! rotated when it is full. Passwords cannot be logged: they have the type `Password`.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Zoned;

use windlass_core::sync::lock;

/// A log file is rotated at this size.
const FILE_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Number of rotated files, `F.1` to `F.5`.
const FILES_MAX: usize = 5;
/// The longest text of a line; messages may be much longer.
const TEXT_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub(crate) fn parse(text: &str) -> Result<Level, String> {
        match text {
            "trace" => Ok(Level::Trace),
            "debug" => Ok(Level::Debug),
            "info" => Ok(Level::Info),
            "warn" => Ok(Level::Warn),
            "error" => Ok(Level::Error),
            _ => Err(format!("Level {text} is not allowed.")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Trace => "TRACE",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }

    /// Its ANSI colour.
    fn colour(self) -> u8 {
        match self {
            Level::Trace => 34,
            Level::Debug => 36,
            Level::Info => 32,
            Level::Warn => 33,
            Level::Error => 91,
        }
    }
}

/// The format of a line on the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// `[2026-11-15T17:48:56.065] [INFO] server - text`, as daemons do.
    Timed,
    /// `INFO [jobctl] text`, as commands do.
    Plain,
}

/// From the configuration; levels are checked when the log is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) file: Option<PathBuf>,
    pub(crate) level_file: String,
    pub(crate) level_console: String,
}

/// A cheap handle with the name of the component that writes.
#[derive(Clone)]
pub struct Log {
    sinks: Arc<Sinks>,
    name: Arc<str>,
}

struct Sinks {
    console: Option<(Level, LineFormat)>,
    file: Option<(Level, Mutex<LogFile>)>,
}

impl Log {
    /// Fails with the error texts of the configuration's sections "levels" and "files".
    pub(crate) fn open(config: &LogConfig, form: LineFormat, name: &str) -> Result<Log, String> {
        let console = Some((Level::parse(&config.level_console)?, form));
        let file = match &config.file {
            None => None,
            Some(path) => {
                let level = Level::parse(&config.level_file)?;
                Some((level, Mutex::new(LogFile::open(path, FILE_BYTES_MAX)?)))
            }
        };
        Ok(Log { sinks: Arc::new(Sinks { console, file }), name: name.into() })
    }

    /// A log that discards everything.
    pub(crate) fn quiet() -> Log {
        Log { sinks: Arc::new(Sinks { console: None, file: None }), name: "".into() }
    }

    /// The same log under another name.
    #[must_use]
    pub(crate) fn named(&self, name: &str) -> Log {
        Log { sinks: self.sinks.clone(), name: name.into() }
    }

    pub(crate) fn debug(&self, text: impl Display) {
        self.write(Level::Debug, &text);
    }

    pub fn info(&self, text: impl Display) {
        self.write(Level::Info, &text);
    }

    pub(crate) fn warn(&self, text: impl Display) {
        self.write(Level::Warn, &text);
    }

    pub fn error(&self, text: impl Display) {
        self.write(Level::Error, &text);
    }

    fn write(&self, level: Level, text: &dyn Display) {
        let console = self.sinks.console.filter(|(least, _)| level >= *least);
        let file = self.sinks.file.as_ref().filter(|(least, _)| level >= *least);
        if console.is_none() && file.is_none() {
            return;
        }
        let (text, time) = (cut(text), Zoned::now());
        // A log that cannot be written must not stop the work.
        if let Some((_, form)) = console {
            let line = coloured(form, level, &self.name, &time, &text);
            let _ = io::stdout().lock().write_all(line.as_bytes());
        }
        if let Some((_, file)) = file {
            let line = format!("{}{text}\n", head(level, &self.name, &time));
            let mut file = lock(file);
            let _ = file.write(line.as_bytes());
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Log({})", self.name)
    }
}

fn head(level: Level, name: &str, time: &Zoned) -> String {
    let (time, level) = (time.strftime("%Y-%m-%dT%H:%M:%S%.3f"), level.name());
    format!("[{time}] [{level}] {name} - ")
}

fn coloured(form: LineFormat, level: Level, name: &str, time: &Zoned, text: &str) -> String {
    let colour = level.colour();
    match form {
        LineFormat::Timed => format!("\x1b[{colour}m{}\x1b[39m{text}\n", head(level, name, time)),
        LineFormat::Plain => format!("\x1b[{colour}m{} [{name}]\x1b[39m {text}\n", level.name()),
    }
}

/// The text, cut to the maximum length of a line.
fn cut(text: &dyn Display) -> String {
    let mut bounded = Bounded(String::new());
    if fmt::write(&mut bounded, format_args!("{text}")).is_err() {
        bounded.0.push('…');
    }
    bounded.0
}

/// Stops at the bound, so that a long text is not formatted completely.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_BYTES_MAX - self.0.len();
        let end = text.floor_char_boundary(room);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64) -> Result<LogFile, String> {
        let shown = path.display();
        let existed = path.exists();
        let opened = append_to(path).map_err(|error| {
            if existed {
                format!("file '{shown}' is not writable:{error}")
            } else {
                format!("failed to create file '{shown}': {error}")
            }
        })?;
        let (file, bytes) = opened;
        Ok(LogFile { path: path.to_owned(), file, bytes, bytes_max })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= self.bytes_max {
            // If files cannot be renamed, a log that is too long is better than none.
            let _ = self.rotate();
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES_MAX).rev() {
            // Gaps are normal: the first files are not there yet.
            let _ = std::fs::rename(self.rotated_path(number), self.rotated_path(number + 1));
        }
        std::fs::rename(&self.path, self.rotated_path(1))?;
        (self.file, self.bytes) = append_to(&self.path)?;
        Ok(())
    }

    fn rotated_path(&self, number: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time() -> Zoned {
        "2026-11-15T17:48:56.065+00:00[UTC]".parse().unwrap()
    }

    fn config(file: Option<&Path>, level_file: &str, level_console: &str) -> LogConfig {
        let (level_file, level_console) = (level_file.to_owned(), level_console.to_owned());
        LogConfig { file: file.map(Path::to_owned), level_file, level_console }
    }

    #[test]
    fn lines_have_the_form_of_the_original() {
        let head = head(Level::Info, "server", &time());
        assert_eq!(head, "[2026-11-15T17:48:56.065] [INFO] server - ");
        assert_eq!(
            coloured(LineFormat::Timed, Level::Info, "server", &time(), "text"),
            "\x1b[32m[2026-11-15T17:48:56.065] [INFO] server - \x1b[39mtext\n"
        );
        assert_eq!(
            coloured(LineFormat::Plain, Level::Error, "jobctl", &time(), "text"),
            "\x1b[91mERROR [jobctl]\x1b[39m text\n"
        );
    }

    #[test]
    fn levels_are_checked_only_where_they_count() {
        for level in ["trace", "debug", "info", "warn", "error"] {
            assert!(
                Log::open(&config(None, "bad", level), LineFormat::Timed, "x").is_ok(),
                "{level}"
            );
        }
        for level in ["fatal", "WARN", "", "off", "null"] {
            let error =
                Log::open(&config(None, "warn", level), LineFormat::Timed, "x").unwrap_err();
            assert_eq!(error, format!("Level {level} is not allowed."));
        }
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("log");
        let error =
            Log::open(&config(Some(&file), "bad", "warn"), LineFormat::Timed, "x").unwrap_err();
        assert_eq!(error, "Level bad is not allowed.");
        assert!(!file.exists());
    }

    #[test]
    fn a_file_gets_what_its_level_allows() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("log");
        std::fs::write(&file, "before\n").unwrap();
        let log =
            Log::open(&config(Some(&file), "info", "error"), LineFormat::Timed, "one").unwrap();
        log.debug("not this");
        log.info("first");
        log.named("two").warn(format_args!("{}", "second"));
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "before");
        assert!(lines[1].ends_with("] [INFO] one - first"), "{text}");
        assert!(lines[2].ends_with("] [WARN] two - second"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said_so() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("no").join("log");
        let error =
            Log::open(&config(Some(&path), "warn", "warn"), LineFormat::Timed, "x").unwrap_err();
        let expected = format!("failed to create file '{}': ", path.display());
        assert!(error.starts_with(&expected), "{error}");
        let error = Log::open(&config(Some(home.path()), "warn", "warn"), LineFormat::Timed, "x");
        let expected = format!("file '{}' is not writable:", home.path().display());
        assert!(error.as_ref().is_err_and(|error| error.starts_with(&expected)), "{error:?}");
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let mut file = LogFile::open(&path, 4).unwrap();
        for line in b'a'..=b'h' {
            file.write(&[line; 4]).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(home.path().join(name)).ok();
        assert_eq!(read("log").as_deref(), Some("hhhh"));
        assert_eq!(read("log.1").as_deref(), Some("gggg"));
        assert_eq!(read("log.5").as_deref(), Some("cccc"));
        assert_eq!(read("log.6"), None);
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut(&"short"), "short");
        assert_eq!(cut(&"x".repeat(TEXT_BYTES_MAX)), "x".repeat(TEXT_BYTES_MAX));
        let long = cut(&format!("x{}", "é".repeat(TEXT_BYTES_MAX)));
        assert!(long.len() <= TEXT_BYTES_MAX + '…'.len_utf8());
        assert!(long.ends_with("é…"));
    }
}
