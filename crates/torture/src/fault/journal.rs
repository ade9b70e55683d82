//! Faults of a journal while its daemon is down.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use windlass_proof::workload::PlannedFault;

use super::{Count, Injector};

/// Longest torn tail.
const TAIL_BYTES_MAX: u64 = 4096;
const BATCH: &[u8] = b"\n#:Batch ";
/// Kills of a daemon until its journal has something that can be torn or damaged.
const JOURNAL_TRIES_MAX: u32 = 4;
/// In this time, clients fill it.
const WORK_TIME: Duration = Duration::from_secs(1);

impl Injector<'_> {
    /// Something was being written when the daemon died, and is not complete.
    pub(super) fn tear_tail(&mut self, number: usize, planned: &PlannedFault) -> Result<()> {
        let torn = self.with_journal(number, |journal| journal.tear(planned.draw))?;
        if torn.is_some() {
            self.done.add(Count::TornTails);
            self.hold(planned);
            self.start(number)?;
        }
        Ok(())
    }

    /// Kills a daemon and does something to a journal that nobody has. If there is none for it,
    /// such as right after another fault, the daemon works for a while before the next try. Without
    /// a result, it is up again.
    fn with_journal<T>(
        &mut self,
        number: usize,
        act: impl Fn(&Journal) -> Option<T>,
    ) -> Result<Option<T>> {
        for attempt in 0..JOURNAL_TRIES_MAX {
            if attempt > 0 {
                self.wait_until(self.site.now_ns() + WORK_TIME.as_nanos() as u64)?;
            }
            self.daemons[number].end(Signal::KILL, &mut self.witness)?;
            let journal = Journal::without_owner(&self.site.data_dir());
            let done = journal.as_ref().and_then(&act);
            // Unlocked, so that its daemon gets it.
            drop(journal);
            if done.is_some() {
                return Ok(done);
            }
            self.start(number)?;
        }
        Ok(None)
    }

    /// A bit flips in the middle of a journal. That must be noticed: nothing of it may be used or
    /// dropped. Then it flips back, as a repair.
    pub(super) fn damage_journal(&mut self, number: usize, planned: &PlannedFault) -> Result<()> {
        let damage = self.with_journal(number, |journal| journal.flip(planned.draw))?;
        let Some(damage) = damage else { return Ok(()) };
        self.done.add(Count::DamagedJournals);
        self.hold(planned);
        self.daemons[number].start(&mut self.witness)?;
        if !self.notices(|injector| injector.sees(number, &damage)) {
            let name = damage.file.display();
            let problem = format!("nobody noticed the damage in {name} at {}", damage.at);
            self.done.problems.push(problem);
        }
        damage.repair()?;
        if self.daemons[number].crashed().is_some() {
            self.daemons[number].end(Signal::KILL, &mut self.witness)?;
            self.daemons[number].start(&mut self.witness)?;
        }
        self.daemons[number].until_ready(&mut self.witness)?;
        if !self.notices(|injector| !injector.takeover_fails(&damage)) {
            self.done.problems.push("a repaired journal was not taken over".into());
        }
        Ok(())
    }

    /// The daemon refuses to start, or one of them says that it cannot take over the journal.
    fn sees(&mut self, number: usize, damage: &Damage) -> bool {
        let refused = self.daemons[number].crashed();
        let named = refused.is_some_and(|console| console.contains("is damaged"));
        named || self.takeover_fails(damage)
    }

    fn takeover_fails(&self, damage: &Damage) -> bool {
        let words = format!("the journal of daemon {} cannot", damage.sysid);
        let mut states = self.daemons.iter().filter_map(|daemon| daemon.state());
        states.any(|state| state["takeover"].as_str().is_some_and(|said| said.contains(&words)))
    }
}

/// A journal whose daemon is gone, locked so that no other takes it over meanwhile.
struct Journal {
    dir: PathBuf,
    _lock: File,
}

impl Journal {
    fn without_owner(data: &Path) -> Option<Journal> {
        let journals = fs::read_dir(data.join("journal")).ok()?.flatten();
        let free = journals.filter_map(|entry| {
            let dir = entry.path();
            let lock = File::open(dir.join("lock")).ok()?;
            lock.try_lock().ok()?;
            Some(Journal { dir, _lock: lock })
        });
        free.filter(|journal| journal.newest_segment().is_ok()).last()
    }

    fn newest_segment(&self) -> Result<PathBuf> {
        let files = fs::read_dir(&self.dir)?.flatten().map(|entry| entry.path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|it| it == "log");
        // Some journals of the run cannot be read on purpose (see `plant`).
        let segments = files.filter(|path| is_segment(path) && path.is_file());
        segments.max().context("the journal has no segment")
    }

    /// Appends what could be a write that was not completed.
    fn tear(&self, draw: u64) -> Option<()> {
        let mut file = File::options().append(true).open(self.newest_segment().ok()?).ok()?;
        let bytes = draw % TAIL_BYTES_MAX + 1;
        let mut random = fastrand::Rng::with_seed(draw);
        let zeros = random.bool();
        let tail: Vec<u8> = (0..bytes).map(|_| if zeros { 0 } else { random.u8(..) }).collect();
        file.write_all(&tail).ok()
    }

    /// Flips a bit in the body of a batch that is not the last; `None` if there is no such batch.
    fn flip(&self, draw: u64) -> Option<Damage> {
        let file = self.newest_segment().ok()?;
        let text = fs::read(&file).ok()?;
        let starts = text.windows(BATCH.len()).enumerate().filter(|(_, at)| *at == BATCH);
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        let (from, to) = (*starts.first()?, *starts.last()?);
        let bodies = from + BATCH.len()..to;
        let at = bodies.start + draw as usize % bodies.len().max(1);
        let sysid = self.dir.file_name()?.to_str()?.to_owned();
        let damage = Damage { file, sysid, at: at as u64, was: *text.get(at)? };
        let flipped = !bodies.is_empty() && damage.write(damage.was ^ 1 << (draw % 7)).is_ok();
        flipped.then_some(damage)
    }
}

struct Damage {
    file: PathBuf,
    /// The number of the daemon whose journal it is.
    sysid: String,
    at: u64,
    was: u8,
}

impl Damage {
    fn write(&self, byte: u8) -> Result<()> {
        Ok(File::options().write(true).open(&self.file)?.write_all_at(&[byte], self.at)?)
    }

    /// The file may be gone if another daemon took over the journal, which it must not have done.
    fn repair(&self) -> Result<()> {
        self.write(self.was).context("the damaged journal is gone")
    }
}
