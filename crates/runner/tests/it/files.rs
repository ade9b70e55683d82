//! Which files a handler can read, write and run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use windlass_core::Lang;
use windlass_runner::{Landlock, Level};

use crate::confine::{strict, with_isolation, written};
use crate::harness::{check_ended, spec};

#[tokio::test]
async fn a_handler_reads_the_system_and_writes_its_own_directory() {
    let script = "set -e; ls /usr > list; cat /etc/passwd > $TMPDIR/users; mkdir -p a/b; mv list a
                  ln -s a link; echo '#!/bin/sh' > run; chmod +x run; ./run; rm -r a; echo done
                  echo seen > /dev/null; echo out > /dev/stdout; echo err > /dev/stderr
                  cat < /proc/$$/stat
                  head -c 4 /dev/urandom | wc -c";
    let report = strict().sh(script).await;
    check_ended(&report, 200, None);
    assert!(report.log.to_string().contains("[stderr] err\n"), "{:?}", report.log);
    let written = written(&report);
    for line in ["done", "out", "4"] {
        assert!(written.iter().any(|written| written == line), "{line}: {written:?}");
    }
}

#[tokio::test]
async fn a_handler_can_neither_write_nor_read_what_is_not_its_own() {
    let fixture = strict();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "a secret\n").unwrap();
    let (dir, scratch) = (outside.path().display(), fixture.scratch.path().display());
    let secret = format!("{dir}/secret");
    for attempt in [
        format!("echo x > {dir}/new"),
        format!("echo x >> {secret}"),
        format!("rm {secret}"),
        format!("mkdir {dir}/sub"),
        format!("ln -s / {dir}/link"),
        format!("mv {secret} ."),
        format!("ln {secret} ."),
        format!("truncate -s 0 {secret}"),
        format!("cat {secret}"),
        format!("ls {dir}"),
        format!("ls {scratch}"),
        format!("cat {scratch}/.lock"),
        "cat /etc/shadow".to_owned(),
        "ls /root".to_owned(),
        "ls /home".to_owned(),
        "echo x > /etc/of-a-handler".to_owned(),
        "echo x > /usr/of-a-handler".to_owned(),
        "echo x > /of-a-handler".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "readlink /proc/$PPID/exe".to_owned(),
        "kill -CONT $PPID".to_owned(),
    ] {
        let report = fixture.sh(&format!("{attempt} && echo reached")).await;
        assert!(!report.log.to_string().contains("reached"), "{attempt}: {:?}", report.log);
        assert!(!report.status.code().ends_job(), "{attempt}: {:?}", report.log);
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "a secret\n");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// What libraries look up below `/etc`; the rest may contain secrets.
const SHOWN_OF_ETC: [&str; 43] = [
    "ImageMagick-6",
    "ImageMagick-7",
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "ghostscript",
    "gitconfig",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "papersize",
    "passwd",
    "perl",
    "php",
    "php.ini",
    "pki",
    "protocols",
    "python3",
    "resolv.conf",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "wgetrc",
    "certs",
    "openssl.cnf",
];

#[tokio::test]
async fn of_the_configuration_a_handler_sees_only_what_libraries_need() {
    let report = strict().sh("ls -A /etc /etc/ssl | grep -v '^$\\|:$'").await;
    check_ended(&report, 200, None);
    let seen = written(&report);
    assert!(seen.iter().any(|name| name == "passwd"), "{seen:?}");
    for name in seen {
        assert!(SHOWN_OF_ETC.contains(&name.as_str()), "{name}");
    }
}

#[tokio::test]
async fn what_a_handler_writes_to_the_temporary_directory_exists_only_for_itself() {
    let outside = Path::new("/tmp/of-a-handler");
    for level in [Landlock::Preferred, Landlock::Off] {
        let fixture = with_isolation(|isolation| isolation.landlock = level);
        let report = fixture.sh("ls -A /tmp; echo x > /tmp/of-a-handler && ls -A $TMPDIR").await;
        check_ended(&report, 200, None);
        assert_eq!(written(&report), ["of-a-handler"]);
        assert!(!outside.exists());
        assert_eq!(written(&fixture.sh("ls -A /tmp").await), [""; 0]);
    }
}

#[tokio::test]
async fn an_operator_can_open_further_paths() {
    let place = tempfile::tempdir().unwrap();
    let (shown, shared) = (place.path().join("shown"), place.path().join("shared"));
    for dir in [&shown, &shared] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("file"), "text\n").unwrap();
        // If the tests run as root, handlers are other users.
        std::fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    }
    let fixture = with_isolation(|isolation| {
        isolation.read = vec![shown.clone(), place.path().join("missing")];
        isolation.write = vec![shared.clone()];
    });
    let script = format!(
        "cat {0}/file; echo new > {1}/new; cat {1}/new; echo x > {0}/new && echo wrong",
        shown.display(),
        shared.display()
    );
    let report = fixture.sh(&script).await;
    assert_eq!(written(&report)[..2], ["text", "new"]);
    assert!(!report.log.to_string().contains("wrong") && !shown.join("new").exists());
    assert_eq!(std::fs::read_to_string(shared.join("new")).unwrap(), "new\n");
}

/// A handler can put a link at a path that is shown, if it may write to what that lies in.
#[tokio::test]
async fn a_link_in_a_writable_path_shows_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (shared, secret) = (place.path().join("shared"), place.path().join("secret"));
    for dir in [place.path(), &shared, &secret] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::write(secret.join("file"), "a secret\n").unwrap();
    std::fs::write(shared.join("file"), "text\n").unwrap();
    std::os::unix::fs::symlink(&secret, shared.join("link")).unwrap();
    let fixture = with_isolation(|isolation| {
        isolation.read = vec![shared.join("link")];
        isolation.write = vec![shared.clone(), shared.join("link")];
    });
    let script =
        format!("cat {0}/link/file; echo x > {0}/link/new; cat {0}/file", shared.display());
    let report = fixture.sh(&script).await;
    assert_eq!(written(&report), ["text"], "{}", report.log);
    assert!(!secret.join("new").exists());
}

#[tokio::test]
async fn a_program_that_lies_elsewhere_is_refused_with_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    let line = program.display().to_string();
    let report = strict().run(spec(Lang::Exec, &line), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("isolation.read"), "{:?}", report.log);
    let opened = with_isolation(|isolation| isolation.read = vec![place.path().to_owned()]);
    check_ended(&opened.run(spec(Lang::Exec, &line), b"").await, 200, None);
}

/// Tries to write a file, and shows that it can gain no privilege.
fn writes(file: &Path) -> String {
    format!("echo x > {}; grep NoNewPrivs /proc/self/status", file.display())
}

#[tokio::test]
async fn without_cells_and_landlock_files_are_open_and_all_else_is_as_strict() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let fixture = with_isolation(|isolation| {
        isolation.level = Level::Off;
        isolation.landlock = Landlock::Off;
    });
    let report = fixture.sh(&writes(&file)).await;
    check_ended(&report, 200, None);
    assert_eq!(written(&report), ["NoNewPrivs:\t1"]);
    assert!(file.exists());
}

#[tokio::test]
async fn without_cells_landlock_keeps_files_closed() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    let fixture = with_isolation(|isolation| isolation.level = Level::Off);
    let report = fixture.sh(&writes(&file)).await;
    assert_eq!(written(&report), ["NoNewPrivs:\t1"]);
    assert!(report.log.to_string().contains("Permission denied"), "{}", report.log);
    assert!(!file.exists());
}

#[tokio::test]
async fn without_landlock_the_private_root_keeps_files_closed() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let file = place.path().join("file");
    let fixture = with_isolation(|isolation| isolation.landlock = Landlock::Off);
    let report = fixture.sh(&writes(&file)).await;
    assert_eq!(written(&report), ["NoNewPrivs:\t1"]);
    assert!(!file.exists());
    for closed in ["cat /etc/shadow", "echo x > /usr/file", "ls /root", "cat /proc/$PPID/environ"] {
        let report = fixture.sh(&format!("{closed} && echo reached")).await;
        assert!(!report.log.to_string().contains("reached"), "{closed}: {:?}", report.log);
        check_ended(&report, 500, None);
    }
}

#[tokio::test]
async fn what_is_required_is_in_force() {
    let fixture = with_isolation(|isolation| isolation.landlock = Landlock::Required);
    let report = fixture.sh("cat /etc/shadow").await;
    check_ended(&report, 500, None);
}
