//! A disk for the data directory that can lose power, be full, fail and hang.
//!
//! ```text
//! daemons ─► disk/data ─► layer (fails, hangs) ─► under ─► volume (loses power, is full)
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use windlass_proof::history::FaultKind;

use crate::guard::Guard;
use crate::layer::{Layer, Trouble};
use crate::volume::{self, Volume};

const VOLUME_HELP: &str =
    "it takes XFS and loop devices (run: modprobe xfs loop), and a container takes --privileged";
const LAYER_HELP: &str = "it takes /dev/fuse (run: modprobe fuse), and a container takes \
                          --device /dev/fuse --cap-add SYS_ADMIN";

pub(crate) struct Disk {
    place: PathBuf,
    /// Where the data directory goes when the run is over.
    rescue: PathBuf,
    // Unmounted in this order.
    layer: Option<Layer>,
    volume: Option<Volume>,
    _guards: [Guard; 2],
}

/// Whether the data directory must be on a disk of its own for this.
pub(crate) fn is_needed(kind: &FaultKind) -> bool {
    needs_volume(kind) || needs_layer(kind)
}

/// Why faults of this kind are not possible here. Tries it: containers often lack what it takes.
pub(crate) fn obstacle(kind: &FaultKind) -> Option<String> {
    let mount = || -> Result<()> {
        let dir = tempfile::tempdir()?;
        let [image, under, place] = ["image", "under", "place"].map(|name| dir.path().join(name));
        let _guard = Guard::of_mount(&place, &image)?;
        if needs_volume(kind) {
            drop(Volume::create(&image, &place)?);
        } else {
            drop(Layer::mount(&under, &place)?);
        }
        Ok(())
    };
    if !is_needed(kind) {
        return None;
    }
    let help = if needs_volume(kind) { VOLUME_HELP } else { LAYER_HELP };
    volume::obstacle().or_else(|| mount().err().map(|error| format!("{error:#}; {help}")))
}

/// Whether a disk can be expected to be possible.
pub(crate) fn may_mount() -> bool {
    rustix::process::geteuid().is_root()
}

fn needs_volume(kind: &FaultKind) -> bool {
    matches!(kind, FaultKind::PowerCut | FaultKind::DiskFull)
}

fn needs_layer(kind: &FaultKind) -> bool {
    use FaultKind::{DiskHang, FailedSync, ReadError, StoreHang, WriteError};
    matches!(kind, ReadError | WriteError | FailedSync | DiskHang | StoreHang)
}

impl Disk {
    /// A disk at `place` for faults of these kinds, with everything else beside it.
    pub(crate) fn new(place: &Path, kinds: &[FaultKind]) -> Result<Disk> {
        let (image, rescue) = (place.with_file_name("disk.xfs"), place.with_file_name("data"));
        let under = place.with_file_name("under");
        let layered = kinds.iter().any(needs_layer);
        let lowest = if layered { under.as_path() } else { place };
        let guards = [Guard::of_mount(&under, &image)?, Guard::of_mount(place, &image)?];
        let own = kinds.iter().any(needs_volume).then(|| Volume::create(&image, lowest));
        let volume = own.transpose()?;
        let layer = layered.then(|| Layer::mount(&under, place)).transpose()?;
        Ok(Disk { place: place.to_owned(), rescue, layer, volume, _guards: guards })
    }

    /// Takes away its power: everything that was not synced is gone, and nothing works any more.
    pub(crate) fn cut(&self) -> Result<()> {
        self.volume()?.cut()
    }

    /// Whether it can lose its power.
    pub(crate) fn has_power(&self) -> bool {
        self.volume.is_some()
    }

    /// Power is back. Everything that used it is gone.
    pub(crate) fn restore(&mut self) -> Result<()> {
        if let Some(layer) = &mut self.layer {
            layer.close()?;
        }
        self.volume()?.restore()?;
        self.layer.as_mut().map_or(Ok(()), Layer::open)
    }

    pub(crate) fn fill(&self) -> Result<()> {
        self.volume()?.fill()
    }

    pub(crate) fn free(&self) -> Result<()> {
        self.volume()?.free()
    }

    pub(crate) fn set(&self, trouble: Trouble) -> Result<()> {
        self.layer.as_ref().context("the run has no disk that fails")?.set(trouble);
        Ok(())
    }

    /// Nothing fails or hangs any more.
    pub(crate) fn end_trouble(&self) {
        if let Some(layer) = &self.layer {
            layer.set(Trouble::None);
        }
    }

    fn volume(&self) -> Result<&Volume> {
        self.volume.as_ref().context("the run has no disk of its own")
    }
}

/// The daemons are gone.
impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = copy(&self.place.join("data"), &self.rescue) {
            println!("the data directory cannot be kept: {error:#}");
        }
    }
}

/// Copies files and folders; sockets and the like are left out.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()? {
            kind if kind.is_dir() => copy(&source, &target)?,
            kind if kind.is_file() => drop(fs::copy(&source, &target)?),
            _ => {}
        }
    }
    Ok(())
}
