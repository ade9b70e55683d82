//! Journals that nobody can read, beside those of the daemons: left by owners that are gone, with a
//! segment whose every read fails. They hold no job of this run, and must keep no other journal
//! from being taken over.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Numbers that no daemon of the run gets. Several, because the order in which a directory is
/// read is that of the file system.
const SYSIDS: [u32; 4] = [3001, 3017, 3101, 4001];
/// Makes them in a data directory that no daemon has used yet.
pub(crate) fn bad_journals(data: &Path) -> Result<()> {
    for sysid in SYSIDS {
        let folder = data.join("journal").join(sysid.to_string());
        // A directory can be opened like a file, but not read.
        let segment = folder.join("0000000000000000001.log");
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&segment).with_context(|| format!("cannot create {}", segment.display()))?;
        fs::write(folder.join("lock"), "")?;
    }
    Ok(())
}
