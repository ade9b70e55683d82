//! How many files a daemon may open, and how many of them its connections may take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that connections leave to the store, the journal and the contexts, unless that is
/// more than half of all.
const RESERVED: u64 = 4096;

/// Raises the limit of open files as far as allowed: thousands of workers may wait, each on its own
/// connection. Handlers get their own limit.
pub(crate) fn allow_many() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// The connections that a door may have: as many as are configured, or as there are files for.
pub(crate) fn connections_max(configured: usize) -> usize {
    let open_files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections_max = fitting(configured, open_files_max);
    if connections_max < configured {
        tracing::warn!(
            configured,
            connections_max,
            open_files_max,
            "fewer connections than http.connections_max are served, because this process may open \
             few files; raise its limit (LimitNOFILE of systemd, or ulimit -n)"
        );
    }
    connections_max
}

fn fitting(configured: usize, open_files_max: u64) -> usize {
    let left = open_files_max - RESERVED.min(open_files_max / 2);
    configured.min(usize::try_from(left).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_rest_of_the_daemon() {
        for (open_files_max, connections) in [
            (0, 1),
            (1024, 512),
            (4096, 2048),
            (10_000, 5904),
            (20_000, 10_000),
            (u64::MAX, 10_000),
        ] {
            assert_eq!(fitting(10_000, open_files_max), connections, "{open_files_max}");
        }
        assert_eq!(fitting(100, 1024), 100);
    }
}
