//! A full disk: adds are refused with a clear error, nothing is half done, and accepting resumes
//! when there is space again. Needs the right to mount a small file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Config, Daemon, run, text, until};

const DISK: &str = "size=24m";

/// A file system of a few megabytes, unmounted at the end. It is declared after the daemon on it,
/// so that it is dropped before its parent directory, which could not be removed otherwise.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> SmallDisk {
        fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "windlass-test"]).arg(path);
        let finished = run(&mut mount, b"");
        assert_eq!(
            finished.code,
            Some(0),
            "this test needs the right to run `mount -t tmpfs -o {DISK} windlass-test <dir>`: {}",
            finished.stderr
        );
        SmallDisk(path.to_owned())
    }

    /// Uses up all remaining space.
    fn fill(&self) {
        let piece = vec![0u8; 4096];
        let mut file = fs::File::create(self.0.join("ballast")).unwrap();
        while std::io::Write::write_all(&mut file, &piece).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(&self.0), b"");
    }
}

#[test]
fn s0_41_a_full_disk_refuses_adds_and_keeps_what_was_accepted() {
    let config = Config::new().set("journal.segment_bytes_max", "1048576");
    let disk = SmallDisk::mount(&config.home.data());
    let (daemon, disk) = (Daemon::start(config), disk);
    let tenant = daemon.tenant("a");
    let before = tenant.add_one("t", "accepted before");
    disk.fill();
    let payload = "x".repeat(100_000);
    let refused = until(
        "adds are refused",
        || daemon.send_text("/v1/a/jobs/t", &payload),
        |answer| answer.status != 201,
    );
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.error_code(), "unavailable");
    let message = text(&refused.json()["error"]["message"]);
    assert!(message.len() > 10, "the message says why: {message}");
    let accepted = tenant.list("type=t").len();
    for _ in 0..3 {
        assert_eq!(daemon.send_text("/v1/a/jobs/t", &payload).status, 503);
    }
    assert_eq!(tenant.list("type=t").len(), accepted, "a refused add leaves no job");
    daemon.get("/healthz").expect(200);
    assert_eq!(daemon.get("/readyz").status, 503, "the journal does not accept");

    disk.free();
    let after = until(
        "adds work again",
        || daemon.send_text("/v1/a/jobs/t", "accepted after"),
        |answer| answer.status == 201,
    );
    let after = crate::harness::ids_of(&after).remove(0);
    daemon.get("/readyz").expect(200);
    let pulled = tenant.drain("t", accepted + 1);
    assert_eq!(pulled.len(), accepted + 1);
    let payload_of =
        |id: &str| pulled.iter().find(|job| job["id"] == id).map(|job| text(&job["payload"]));
    assert_eq!(payload_of(&before).as_deref(), Some("accepted before"));
    assert_eq!(payload_of(&after).as_deref(), Some("accepted after"));
}

#[test]
fn s0_41_an_upload_that_does_not_fit_is_refused_and_its_room_is_given_back() {
    let config = Config::new();
    let disk = SmallDisk::mount(&config.home.data());
    let (daemon, _disk) = (Daemon::start(config), disk);
    let tenant = daemon.tenant("a");
    let headers = [("Content-Type", "application/octet-stream")];
    let mut connection = daemon.connection();
    // The daemon may answer before it has read everything, and close.
    let _ = connection.send("POST", "/v1/a/jobs/t", &headers, &vec![1; 40_000_000]);
    if let Ok(answer) = connection.receive() {
        assert_eq!(answer.expect(503).error_code(), "unavailable");
    }
    assert!(tenant.list("").is_empty());
    let id = until(
        "adds work",
        || daemon.send_text("/v1/a/jobs/t", "small"),
        |answer| answer.status == 201,
    );
    let id = crate::harness::ids_of(&id).remove(0);
    assert_eq!(tenant.until_claimed("t", "60s")["id"], id.as_str());
}

/// Only the store's disk is full: adds still go into the journal, and run when there is space.
#[test]
fn s0_21_a_full_disk_of_the_store_does_not_stop_adds() {
    let config = Config::embedded();
    let mounted = config.home.data().with_file_name("store-disk");
    let disk = SmallDisk::mount(&mounted);
    let store = format!("sqlite:{}", mounted.join("store.db").display());
    let (daemon, disk) = (Daemon::start(config.flag("--store").flag(&store)), disk);
    let tenant = daemon.tenant("a");
    let first = tenant.add_one("t", "first");
    assert_eq!(tenant.until_claimed("t", "60s")["id"], first.as_str());
    disk.fill();
    let payload = "x".repeat(50_000);
    let mut ids: Vec<String> = (0..100).map(|_| tenant.add_one("t", &payload)).collect();
    disk.free();
    ids.push(tenant.add_one("t", "last"));
    let mut pulled: Vec<String> =
        tenant.drain("t", ids.len()).iter().map(|job| text(&job["id"])).collect();
    pulled.sort();
    assert_eq!(pulled, ids);
}
