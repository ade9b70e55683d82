//! Where the control groups of this process are, from the kernel's own lists.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directories of this process's own groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Version 2.
    pub(super) unified: Option<PathBuf>,
    /// Version 1, by controller.
    pub(super) memory: Option<PathBuf>,
    pub(super) pids: Option<PathBuf>,
    /// Where hierarchies are mounted.
    pub(super) mounts: Vec<PathBuf>,
}

/// A line of the list of mounts: which hierarchy, its part that is mounted, and where.
struct Mounted<'a> {
    /// Empty for version 2.
    controllers: Vec<&'a str>,
    is_unified: bool,
    root: &'a str,
    at: &'a str,
}

impl Places {
    /// `mounts` is `/proc/self/mountinfo`, `groups` is `/proc/self/cgroup`.
    pub(super) fn read(mounts: &str, groups: &str) -> Places {
        let mounted: Vec<Mounted<'_>> = mounts.lines().filter_map(Mounted::read).collect();
        let place = |of: &dyn Fn(&Mounted<'_>) -> bool, path: Option<&str>| {
            mounted.iter().filter(|mounted| of(mounted)).find_map(|mounted| {
                let inside = Path::new(path?).strip_prefix(mounted.root).ok()?;
                // Outside of what a namespace shows, the kernel's answer begins with `..`.
                let is_below = !inside.starts_with("..");
                is_below.then(|| Path::new(mounted.at).join(inside))
            })
        };
        let of_controller = |name: &str| {
            let has = |mounted: &Mounted<'_>| mounted.controllers.contains(&name);
            place(&has, own_path(groups, name))
        };
        Places {
            unified: place(&|mounted| mounted.is_unified, own_path(groups, "")),
            memory: of_controller("memory"),
            pids: of_controller("pids"),
            mounts: mounted.iter().map(|mounted| mounted.at.into()).collect(),
        }
    }

    /// Whether the path is in a hierarchy of groups, as far as its text tells.
    pub(super) fn contain(&self, path: &Path) -> bool {
        let is_plain = path.components().all(|part| part.as_os_str() != "..");
        is_plain && self.mounts.iter().any(|mount| path.starts_with(mount) && path != mount)
    }
}

impl Mounted<'_> {
    fn read(line: &str) -> Option<Mounted<'_>> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let is_unified = kind == "cgroup2";
        let controllers = if kind == "cgroup" { options.split(',').collect() } else { Vec::new() };
        (is_unified || kind == "cgroup").then_some(Mounted { controllers, is_unified, root, at })
    }
}

/// The path of this process in the hierarchy of a controller; of version 2 for an empty name.
fn own_path<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Writes to a file that exists.
pub(super) fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_of_version_2_is_below_its_mount() {
        let mounts =
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
                      22 1 8:1 / / rw - ext4 /dev/sda1 rw";
        let mounts = mounts.replace("                      ", "");
        let places = Places::read(&mounts, "0::/system.slice/windlass.service\n");
        let own = Path::new("/sys/fs/cgroup/system.slice/windlass.service");
        assert_eq!((places.unified.as_deref(), places.memory.as_deref()), (Some(own), None));
        assert!(places.contain(own) && !places.contain(Path::new("/sys/fs/cgroup")));
        assert!(!places.contain(Path::new("/sys/fs/cgroup/../x")));
        assert!(!places.contain(Path::new("/tmp/x")));
    }

    #[test]
    fn version_1_has_a_place_for_each_controller() {
        let mounts = "40 32 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 32 0:34 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      42 32 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      43 32 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "9:pids:/box/a\n4:memory:/of/us\n1:cpu,cpuacct:/\n0::/\n";
        let places = Places::read(mounts, groups);
        assert_eq!(places.memory, Some("/sys/fs/cgroup/memory/of/us".into()));
        assert_eq!(places.pids, Some("/sys/fs/cgroup/pids/a".into()));
        assert_eq!(places.unified, Some("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_has_no_place() {
        let mounts = "41 32 0:34 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      43 32 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let places = Places::read(mounts, "4:memory:/elsewhere\n0::/../other\n");
        assert_eq!((places.memory, places.unified), (None, None));
        assert_eq!(Places::read("", ""), Places::default());
    }
}
