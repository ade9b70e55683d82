//! A test's own folder and table, with jobs that are small shell scripts.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_test_kit::folder::Folder;

use super::{Base, Conf, Daemon, Row, free_port, until_seen, until_some};

pub(crate) struct Home {
    pub(crate) base: Base,
    folder: Folder,
    next: AtomicU64,
}

impl Home {
    /// With a database in the MariaDB that all share.
    pub(crate) fn new() -> Self {
        Self::with(Base::mariadb())
    }

    pub(crate) fn with(base: Base) -> Self {
        Self::in_folder(Folder::new(), base)
    }

    pub(crate) fn sqlite() -> Self {
        let folder = Folder::new();
        let base = Base::sqlite(folder.dir());
        Self::in_folder(folder, base)
    }

    fn in_folder(folder: Folder, base: Base) -> Self {
        Self { base, folder, next: AtomicU64::new(1) }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.dir()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// A worker's file with the required keys, and jobs that run their own scripts.
    pub(crate) fn conf(&self) -> Conf {
        let server = self.base.server();
        let conf = Conf::new(&[("host", "127.0.0.1")]).set("port", free_port());
        conf.set("mysql_host", "127.0.0.1")
            .set("mysql_port", server.port())
            .set("mysql_user", server.user())
            .set("mysql_password", server.password())
            .set("mysql_database", self.base.name())
            .set("mysql_table", "jobs")
            .set("launcher", self.launcher())
            .targets(&[("low", "2"), ("1/high", "3")])
    }

    /// A worker's file that names its table by a URL.
    pub(crate) fn storage_conf(&self) -> Conf {
        Conf::new(&[("host", "127.0.0.1"), ("mysql_table", "jobs")])
            .set("port", free_port())
            .set("storage", self.base.url())
            .set("launcher", self.launcher())
            .targets(&[("low", "2"), ("1/high", "3")])
    }

    pub(crate) fn launcher(&self) -> String {
        format!("/bin/sh {}/{{id}}.sh", self.folder().display())
    }

    pub(crate) fn master_conf(&self) -> Conf {
        Conf::new(&[("host", "127.0.0.1")]).set("port", free_port())
    }

    pub(crate) fn worker(&self, conf: &Conf) -> Daemon {
        Daemon::start("jobd", self.folder(), conf)
    }

    pub(crate) fn master(&self, conf: &Conf) -> Daemon {
        Daemon::start("jobd-master", self.folder(), conf)
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A row with this target and status, and the script that is its job.
    pub(crate) fn job(&self, target: &str, status: &str, script: &str) -> u64 {
        let id = self.next_id();
        fs::write(self.path(&format!("{id}.sh")), script).unwrap();
        self.base.sql(&format!(
            "INSERT INTO jobs (id, target, time_created, status) \
             VALUES ({id}, '{target}', 1, '{status}')"
        ));
        id
    }

    pub(crate) fn waiting(&self, target: &str, script: &str) -> u64 {
        self.job(target, "waiting", script)
    }

    pub(crate) fn manual(&self, target: &str, script: &str) -> u64 {
        self.job(target, "manual", script)
    }

    /// Many rows at once, all with the same script; returns the first id.
    pub(crate) fn many(&self, target: &str, count: u64, script: &str) -> u64 {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let mut rows = Vec::new();
        for id in first..first + count {
            fs::write(self.path(&format!("{id}.sh")), script.replace("{id}", &id.to_string()))
                .unwrap();
            rows.push(format!("({id}, '{target}', 1, 'waiting')"));
        }
        let rows = rows.join(",");
        self.base
            .sql(&format!("INSERT INTO jobs (id, target, time_created, status) VALUES {rows}"));
        first
    }

    /// A script that reports its start, and waits until the gate of this name is opened. It ends by
    /// itself when the test's folder is gone.
    pub(crate) fn gated(&self, gate: &str) -> String {
        let folder = self.folder().display();
        format!(
            "echo $$ > {folder}/{gate}.tmp; mv {folder}/{gate}.tmp {folder}/{gate}.began\n\
             while [ -e {folder} ] && [ ! -e {folder}/{gate}.open ]; do sleep 0.03; done\n"
        )
    }

    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.path(&format!("{gate}.open")), "").unwrap();
    }

    pub(crate) fn has_begun(&self, gate: &str) -> bool {
        self.path(&format!("{gate}.began")).exists()
    }

    /// Waits until the gated script runs; returns its process id.
    pub(crate) fn began(&self, gate: &str) -> u32 {
        let file = self.path(&format!("{gate}.began"));
        until_some(&format!("{gate} begins"), || {
            fs::read_to_string(&file).ok()?.trim().parse().ok()
        })
    }

    /// Waits until the row is `done`.
    pub(crate) fn done(&self, id: u64) -> Row {
        self.reaches(id, "done");
        self.base.row(id)
    }

    #[track_caller]
    pub(crate) fn reaches(&self, id: u64, status: &str) {
        let what = format!("job {id} becomes {status}");
        until_seen(&what, || self.base.status(id), |seen| seen == status);
    }

    /// This many jobs have appended their ids to the file `ran`, each of them once.
    #[track_caller]
    pub(crate) fn ran_once(&self, jobs: u64) {
        let lines = self.lines("ran");
        let distinct: HashSet<&String> = lines.iter().collect();
        let seen = (lines.len() as u64, distinct.len() as u64);
        assert_eq!(seen, (jobs, jobs), "{lines:?}");
    }

    /// The lines that jobs left in this file.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        self.folder.lines(name)
    }
}
