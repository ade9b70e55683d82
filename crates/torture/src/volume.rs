//! An XFS image on a loop device, whose power can be cut, and which can be full.
//!
//! A cut is XFS's own shutdown without flushing its log: what was not synced is gone, and recovery
//! replays the log as after a real one. ext4 is too kind for this: it hid losses that XFS showed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

/// Small, so that it is made and recovered quickly. mkfs.xfs refuses less than 300 MB.
const BYTES: u64 = 512 * 1024 * 1024;
/// Handlers' processes end when their daemon is gone, and keep the disk busy until then.
const BUSY_TIME_MAX: Duration = Duration::from_secs(60);
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The smallest piece of a disk that a file takes.
const BLOCK_BYTES: u64 = 4096;
const PROGRAMS: [&str; 4] = ["mkfs.xfs", "xfs_io", "mount", "umount"];

pub(crate) struct Volume {
    image: PathBuf,
    place: PathBuf,
}

/// Why a volume cannot be used here, with what helps.
pub(crate) fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting a disk needs root; run it as root".into());
    }
    let missing = PROGRAMS.iter().find(|program| {
        let found =
            Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status();
        !found.is_ok_and(|status| status.success())
    });
    missing.map(|program| format!("{program} is missing; run: apt-get install -y xfsprogs mount"))
}

impl Volume {
    /// Makes the image and mounts it at `place`. Its owner guards both.
    pub(crate) fn create(image: &Path, place: &Path) -> Result<Volume> {
        fs::create_dir_all(place)?;
        File::create(image)?.set_len(BYTES)?;
        call(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(image))?;
        mount(image, place)?;
        Ok(Volume { image: image.to_owned(), place: place.to_owned() })
    }

    /// Takes away the disk's power: everything that was not synced is gone, and nothing works until
    /// it is mounted again.
    pub(crate) fn cut(&self) -> Result<()> {
        call(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.place))
    }

    /// Power is back: mounts it again, which replays its log.
    pub(crate) fn restore(&self) -> Result<()> {
        unmount(&self.place)?;
        mount(&self.image, &self.place)?;
        // A cut right after the disk was emptied brings the file back.
        if self.filler().exists() { self.free() } else { Ok(()) }
    }

    /// Leaves no room for anything.
    pub(crate) fn fill(&self) -> Result<()> {
        let file = File::create(self.filler())?;
        let mut length = 0;
        let mut step = BYTES;
        while step >= BLOCK_BYTES {
            match fallocate(&file, FallocateFlags::empty(), length, step) {
                Ok(()) => length += step,
                Err(Errno::NOSPC) => step /= 2,
                Err(error) => return Err(error).context("the disk cannot be filled"),
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub(crate) fn free(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("the disk cannot be emptied")
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if unmount(&self.place).is_err() {
            let _ = call(Command::new("umount").arg("-l").arg(&self.place));
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn mount(image: &Path, place: &Path) -> Result<()> {
    let mut command = Command::new("mount");
    call(command.args(["-t", "xfs", "-o", "loop,nouuid"]).arg(image).arg(place))
}

/// Unmounts a file system as soon as nothing uses it any more.
pub(crate) fn unmount(place: &Path) -> Result<()> {
    let until = Instant::now() + BUSY_TIME_MAX;
    loop {
        match call(Command::new("umount").arg(place)) {
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => {
                wake_users(place);
                std::thread::sleep(BUSY_PAUSE);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Lets processes go on that work in this place. Outside of the sandbox, a daemon that ends a
/// handler stops its processes first; if it is killed right then, they stay stopped, and cannot
/// notice that it is gone.
fn wake_users(place: &Path) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let number = process.file_name().to_str().and_then(|name| name.parse().ok());
        let works_there = fs::read_link(process.path().join("cwd"));
        if let Some(pid) = number.and_then(Pid::from_raw)
            && works_there.is_ok_and(|folder| folder.starts_with(place))
        {
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

fn call(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use windlass_proof::history::FaultKind;
    use windlass_test_kit::process::Tied;
    use windlass_test_kit::wait::until;

    use super::*;
    use crate::disk;
    use crate::guard::Guard;

    #[test]
    fn it_loses_what_was_not_synced_and_is_full_when_it_should() {
        if let Some(obstacle) = disk::obstacle(&FaultKind::PowerCut) {
            println!("skipped: {obstacle}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (image, place) = (dir.path().join("image"), dir.path().join("disk"));
        let _guard = Guard::of_mount(&place, &image).unwrap();
        let volume = Volume::create(&image, &place).unwrap();
        let data = place.join("data");
        fs::create_dir(&data).unwrap();
        let mut synced = File::create(data.join("synced")).unwrap();
        synced.write_all(b"one").unwrap();
        synced.sync_all().unwrap();
        File::open(&data).unwrap().sync_all().unwrap();
        synced.write_all(b"two").unwrap();
        fs::write(data.join("lost"), "three").unwrap();
        drop(synced);
        volume.cut().unwrap();
        volume.restore().unwrap();
        assert_eq!(fs::read(data.join("synced")).unwrap(), b"one");
        assert!(!data.join("lost").exists());
        volume.fill().unwrap();
        assert!(fs::write(data.join("more"), vec![1; 100_000]).is_err());
        volume.free().unwrap();
        fs::write(data.join("more"), vec![1; 100_000]).unwrap();
        volume.fill().unwrap();
        File::open(volume.filler()).unwrap().sync_all().unwrap();
        volume.free().unwrap();
        volume.cut().unwrap();
        volume.restore().unwrap();
        fs::write(data.join("after"), vec![1; 100_000]).expect("the file that filled it is gone");
        let mut command = Command::new("sh");
        let mut stopped = Tied::spawn(command.args(["-c", "kill -STOP $$"]).current_dir(&data));
        let pid = stopped.pid();
        until("it is stopped", || {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
        });
        drop(volume);
        assert!(!data.exists(), "it is unmounted");
        assert!(stopped.ended().success(), "it was woken");
    }
}
