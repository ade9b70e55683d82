//! The list of a backup's files, with their sizes and checksums, and its own.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use windlass_engine::backup as data;

use super::copy::{FILE_MODE, Meter, checksum, hex};

/// The version of the format that this code writes and reads.
const FORMAT: u64 = 1;
const FILE_NAME: &str = "manifest.json";
/// The store's copy in a backup, wherever the daemon has its store.
pub(super) const STORE: &str = "store.db";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u64,
    /// The version of Windlass that made the backup.
    windlass: String,
    pub(super) created_at: String,
    pub(super) files: Vec<Entry>,
    /// Checksum of all of the above.
    sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Relative to the backup.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Manifest {
    pub(super) fn new(created_at: String, files: Vec<Entry>) -> Manifest {
        let windlass = env!("CARGO_PKG_VERSION").to_owned();
        let mut manifest =
            Manifest { format: FORMAT, windlass, created_at, files, sha256: String::new() };
        manifest.sha256 = manifest.sum();
        manifest
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn sum(&self) -> String {
        let Manifest { format, windlass, created_at, files, .. } = self;
        let mut text = format!("{format}\n{windlass}\n{created_at}\n");
        for Entry { path, bytes, sha256 } in files {
            text += &format!("{sha256} {bytes} {path}\n");
        }
        hex(&Sha256::digest(text))
    }

    /// Writes and syncs it.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_string_pretty(self)?;
        let open = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&path);
        open.and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.sync_all()
        })
        .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads the manifest of a backup and checks everything but the contents of the files.
    pub(super) fn read(dir: &Path) -> anyhow::Result<Manifest> {
        let path = dir.join(FILE_NAME);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{} is not a backup of Windlass: it has no {FILE_NAME}", dir.display())
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        Manifest::parse(&text).with_context(|| format!("cannot use {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Manifest> {
        // The version first: the rest of a later one may look different.
        let value: Value = serde_json::from_str(text).context("it is damaged")?;
        match value["format"].as_u64() {
            Some(FORMAT) => {}
            Some(format) if format > FORMAT => bail!(
                "the backup has format {format} of a newer Windlass; this one reads format {FORMAT}"
            ),
            _ => bail!("it is damaged: it has no valid format"),
        }
        let manifest: Manifest = serde_json::from_value(value).context("it is damaged")?;
        if manifest.sum() != manifest.sha256 {
            bail!("it is damaged: its checksum is wrong");
        }
        let mut seen = HashSet::new();
        for Entry { path, .. } in &manifest.files {
            if !(path == STORE || data::is_data_file(Path::new(path))) || !seen.insert(path) {
                bail!("it lists a file that is not part of a backup: {path}");
            }
        }
        if let Some(missing) =
            [STORE, data::PLACE].into_iter().find(|name| !seen.contains(&(*name).to_owned()))
        {
            bail!("it does not list {missing}");
        }
        Ok(manifest)
    }
}

impl Entry {
    /// Compares the file with what the manifest says.
    pub(super) fn verify(&self, dir: &Path, meter: &mut Meter) -> anyhow::Result<()> {
        let path = dir.join(&self.path);
        let file = File::open(&path).with_context(|| self.cannot_read(&path))?;
        let bytes = file.metadata().with_context(|| self.cannot_read(&path))?.len();
        if bytes != self.bytes {
            let expected = self.bytes;
            bail!("{} is damaged: it has {bytes} bytes instead of {expected}", path.display());
        }
        self.check_sum(&path, &checksum((&file, &path), bytes, meter)?)
    }

    /// `found` is what was read: the number of bytes, and their checksum.
    pub(super) fn check_sum(&self, path: &Path, found: &(u64, String)) -> anyhow::Result<()> {
        if (self.bytes, &self.sha256) != (found.0, &found.1) {
            bail!("{} is damaged: its checksum is wrong", path.display());
        }
        Ok(())
    }

    fn cannot_read(&self, path: &Path) -> String {
        format!("the backup is not complete: cannot read {}", path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(paths: &[&str]) -> Manifest {
        let entry = |path: &&str| Entry { path: (*path).into(), bytes: 3, sha256: "ab".into() };
        Manifest::new("2026-11-17T12:00:00Z".into(), paths.iter().map(entry).collect())
    }

    fn parse(manifest: &Manifest) -> Result<Manifest, String> {
        let text = serde_json::to_string(manifest).unwrap();
        Manifest::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_manifest_reads_back_and_any_change_is_reported() {
        let good = manifest(&["place", "payload/1-2.payload", "store.db"]);
        assert_eq!(parse(&good), Ok(good.clone()));
        let text = serde_json::to_string(&good).unwrap();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::parse(&changed).is_err(), "{changed}");
        }
    }

    #[test]
    fn files_that_are_no_part_of_a_backup_and_missing_ones_are_refused() {
        for paths in [
            &["place", "store.db", "../x"][..],
            &["place", "store.db", "/etc/x"],
            &["place", "place", "store.db"],
            &["place"],
            &["store.db"],
        ] {
            assert!(parse(&manifest(paths)).is_err(), "{paths:?}");
        }
    }
}
