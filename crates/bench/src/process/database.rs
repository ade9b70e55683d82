//! Private database servers.

use anyhow::ensure;

use windlass_test_servers::{Kind, Server};

use crate::machine::Machine;

/// If the server is missing, the error says how to install it. Its user may lack access to the
/// directory of the other rows, so its data is below the temporary directory.
pub(crate) fn start(kind: Kind) -> anyhow::Result<Server> {
    let temporary = std::env::temp_dir();
    ensure!(
        !Machine::inspect(&temporary)?.in_memory(),
        "{} is kept in memory, where a sync costs nothing; choose a disk with TMPDIR",
        temporary.display()
    );
    Ok(Server::start(kind))
}
