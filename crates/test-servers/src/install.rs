//! Initialised data directories. Initialising takes seconds, so each process does it once and
//! copies the result.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use std::os::unix::fs::PermissionsExt;

use windlass_test_kit::process;

use crate::Kind;
use crate::folder::{Folder, Owner};
use crate::kind::{PASSWORD, USER, init_file};

/// A folder with an initialised data directory that is not in use yet.
pub(crate) fn installed(kind: Kind) -> Folder {
    static TEMPLATES: Mutex<Vec<(Kind, Folder)>> = Mutex::new(Vec::new());
    let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
    let template = match templates.iter().position(|(known, _)| *known == kind) {
        Some(at) => &templates[at].1,
        None => {
            templates.push((kind, install(kind)));
            &templates[templates.len() - 1].1
        }
    };
    let folder = new_folder(kind);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(template.data()).arg(init_file(&template.data())).arg(&folder.path);
    run(&mut copy);
    folder
}

fn install(kind: Kind) -> Folder {
    let folder = new_folder(kind);
    let data = folder.data();
    fs::create_dir(&data).expect("a data directory");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("its rights");
    folder.give(&data).expect("the data directory can be given to the server's user");
    let init = format!(
        "CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
    );
    fs::write(init_file(&data), init).expect("a file below the temporary folder");
    let mut command = kind.install(&data);
    folder.belong(&mut command);
    run(&mut command);
    folder
}

fn new_folder(kind: Kind) -> Folder {
    Folder::new(kind.scheme(), owner(kind)).expect("a folder below the temporary one")
}

/// These servers refuse to run as root; other users run them as themselves.
fn owner(kind: Kind) -> Option<Owner> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let user = kind.system_user();
    let id = |what: &str| {
        let answer = process::run(Command::new("id").args([what, user]), "");
        answer.stdout.trim().parse().unwrap_or_else(|_| {
            panic!("there is no user {user}; install the Debian package {}", kind.package())
        })
    };
    Some(Owner { user: id("-u"), group: id("-g") })
}

fn run(command: &mut Command) {
    let done = process::run(&mut *command.current_dir("/"), "");
    assert_eq!(done.code, Some(0), "{command:?}: {}{}", done.stdout, done.stderr);
}
