//! What errors tell about the machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use serde_json::json;

use crate::harness::{Config, Daemon, Door, StoreLock, until};
use crate::users::{as_both_users, strict};

#[test]
fn no_error_shows_where_the_data_is() {
    as_both_users(hides_its_data);
}

fn hides_its_data(config: Config) {
    let door = Door::start_with(config);
    let tenant = door.tenant("default");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "queued");
    let data = door.home().data();
    let path = data.to_str().unwrap();
    let lock = StoreLock::take(&door.daemon.config);
    let told = tenant.post(&format!("jobs/{id}/cancel")).expect(503).text();
    assert!(told.contains("lock of store.db"), "it says what is wrong: {told}");
    let put = json!({"lang": "sh", "body": "exit 0"});
    let handler = door.daemon.send_json("PUT", &tenant.path("handlers/t"), &put).expect(503);
    let bedrock = door.about("DeleteJob", id.parse().unwrap());
    assert!(bedrock.line.starts_with("503"), "{bedrock:?}");
    let query = door.call("Query", &[("query", "DELETE FROM jobs WHERE 1;")]);
    assert!(query.line.starts_with("503"), "{query:?}");
    let ready = door.daemon.get("/readyz");
    let status = door.daemon.get("/v1/status");
    let replies = [bedrock, query].map(|reply| format!("{reply:?} {}", reply.text()));
    for shown in [told, handler.text(), ready.text(), status.text()].into_iter().chain(replies) {
        assert!(!shown.contains(path), "{shown}");
    }
    drop(lock);
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
}

/// Everything that clients see of a job that cannot be started now.
fn shown_of(daemon: &Daemon, id: &str) -> String {
    let paths = [format!("/v1/a/jobs/{id}"), format!("/v1/a/jobs/{id}/log"), "/v1/status".into()];
    let shown = paths.map(|path| daemon.get(&path).text()).join("\n");
    shown + &daemon.get("/readyz").text()
}

#[test]
fn no_error_of_a_handlers_start_shows_where_the_data_is() {
    as_both_users(|config| {
        let daemon = Daemon::start(strict(config));
        let tenant = daemon.tenant("a");
        let data = daemon.home().data();
        let path = data.to_str().unwrap();
        for (lang, body, state) in [
            ("exec", "/nope/program", "failed"),
            ("exec", "/etc/passwd", "failed"),
            ("sh", "exec /nope/program", "failed"),
            ("python", "this is no program", "failed"),
            ("python", "import nope", "failed"),
            ("node", "require('nope')", "failed"),
            ("sh", "true", "finished"),
        ] {
            let handler = json!({"lang": lang, "body": body});
            let set = daemon.send_json("PUT", "/v1/a/handlers/t", &handler);
            assert!(!set.text().contains(path), "{}", set.text());
            if set.status == 400 {
                continue;
            }
            let id = tenant.add_one("t", "x");
            assert_eq!(tenant.until_end(&id)["state"], state, "{body}");
            let shown = shown_of(&daemon, &id);
            assert!(!shown.contains(path), "{shown}");
        }
        // Private directories cannot be made.
        let (scratch, away) = (data.join("scratch"), data.join("away"));
        for (lang, body) in [("sh", "true"), ("python", "return 200")] {
            let kind = format!("later-{lang}");
            tenant.handler(&kind, &json!({"lang": lang, "body": body}));
            fs::rename(&scratch, &away).unwrap();
            let id = tenant.add_one(&kind, "x");
            let told = || {
                daemon
                    .log
                    .lines()
                    .iter()
                    .any(|line| line.contains(&id) && line.contains("returned"))
            };
            until("it is returned", told, |told| *told);
            let shown = shown_of(&daemon, &id);
            assert!(!shown.contains(path), "{shown}");
            fs::rename(&away, &scratch).unwrap();
            tenant.until_state(&id, "finished");
        }
    });
}

#[test]
fn no_error_about_secrets_shows_where_the_data_is() {
    as_both_users(|config| {
        let daemon = Daemon::start(strict(config));
        let tenant = daemon.tenant("a");
        let data = daemon.home().data();
        let path = data.to_str().unwrap();
        let (file, away) = (data.join("secrets.key"), data.join("away.key"));
        tenant.secret("DOOR", "hunter2!");
        let options = json!({"secrets": ["DOOR"]});
        let handler = json!({"lang": "sh", "body": "[ -n \"$DOOR\" ]", "options": options});
        tenant.handler("t", &handler);
        fs::rename(&file, &away).unwrap();
        type Wrong = fn(&std::path::Path, &std::path::Path);
        let wrongs: [(&str, Wrong); 5] = [
            ("missing", |_, _| {}),
            ("open to all", |file, _| fs::write(file, "nonsense\n").unwrap()),
            ("garbage", |file, away| {
                fs::copy(away, file).unwrap();
                fs::write(file, "nonsense\n").unwrap();
                let owner = fs::metadata(away).unwrap();
                chown(file, Some(owner.uid()), None).unwrap();
            }),
            ("a link", |file, away| std::os::unix::fs::symlink(away, file).unwrap()),
            ("a directory", |file, _| fs::create_dir(file).unwrap()),
        ];
        for (name, wrong) in wrongs {
            wrong(&file, &away);
            let text = [("Content-Type", "text/plain")];
            let set = daemon.call("PUT", "/v1/a/secrets/OTHER", &text, b"hunter3!").expect(503);
            let rekeyed = daemon.post("/v1/secrets/rekey").expect(503);
            let id = tenant.add_one("t", "x");
            assert_eq!(tenant.until_end(&id)["state"], "failed", "{name}");
            for shown in [set.text(), rekeyed.text(), shown_of(&daemon, &id)] {
                assert!(!shown.contains(path), "{name}: {shown}");
                assert!(shown.contains("key file") || shown.contains("secrets.key"), "{shown}");
            }
            let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
        }
        fs::rename(&away, &file).unwrap();
        daemon.post("/v1/secrets/rekey").expect(200);
        let id = tenant.add_one("t", "x");
        assert_eq!(tenant.until_end(&id)["state"], "finished");
    });
}
