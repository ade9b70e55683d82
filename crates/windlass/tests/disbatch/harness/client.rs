//! `windlass disbatch`, run to its end.

use serde_json::Value;

use super::{Dci, Ended, run, windlass};

/// The client with exactly these arguments.
pub(crate) fn client(arguments: &[&str]) -> Ended {
    run(windlass(&[&["disbatch"], arguments].concat()), "")
}

impl Dci {
    /// The client of this interface.
    pub(crate) fn client(&self, arguments: &[&str]) -> Ended {
        client(&[&["--url", &self.url()], arguments].concat())
    }

    /// The output of a successful client.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let ended = self.client(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr, "", "{arguments:?}");
        ended.stdout
    }

    /// The JSON that it printed.
    #[track_caller]
    pub(crate) fn done_json(&self, arguments: &[&str]) -> Value {
        let text = self.done(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The message of a refused client.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let ended = self.client(arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
        ended.stderr
    }

    /// The message of a client that the server or the client itself refused as wrong usage.
    #[track_caller]
    pub(crate) fn misused(&self, arguments: &[&str]) -> String {
        let ended = self.client(arguments);
        assert!(matches!(ended.code, Some(1 | 2)), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
        ended.stderr
    }
}
