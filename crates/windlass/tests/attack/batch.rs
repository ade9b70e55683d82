//! Code of one job writes to the descriptor on which its context answers, to speak for a later job
//! of its batch.

use serde_json::{Value, json};

use crate::harness::{Daemon, Tenant, until};
use crate::users::{as_both_users, strict};

/// In a batch, the first job forges the ends of both when the test lets it, and does not end.
fn forgers(go: &str, frames: &[String]) -> [(&'static str, String); 2] {
    let texts = serde_json::to_string(frames).unwrap();
    [
        (
            "node",
            format!(
                "if (payload === 'honest') return {{data: 'honest'}};\n\
                 const fs = require('fs');\n\
                 const wait = () => new Promise((done) => setTimeout(done, 10));\n\
                 while (!fs.existsSync('{go}')) await wait();\n\
                 for (const text of {texts}) {{\n\
                 \x20 const frame = Buffer.alloc(4 + text.length);\n\
                 \x20 frame.writeUInt32BE(text.length); frame.write(text, 4);\n\
                 \x20 fs.writeSync(4, frame);\n\
                 }}\n\
                 console.log('forged');\n\
                 for (;;) await wait();"
            ),
        ),
        (
            "python",
            format!(
                "import os, time\n\
                 if payload == 'honest': return {{'data': 'honest'}}\n\
                 while not os.path.exists('{go}'): time.sleep(0.01)\n\
                 for text in {texts}: os.write(4, len(text).to_bytes(4, 'big') + text.encode())\n\
                 print('forged', flush=True)\n\
                 while True: time.sleep(1)"
            ),
        ),
    ]
}

/// Adds both jobs so that they are claimed together.
fn batch(daemon: &Daemon, tenant: &Tenant, kind: &str) -> Vec<String> {
    daemon.stop_picking();
    let ids = tenant.add(kind, &["evil", "honest"]);
    until("both are in the store", || tenant.type_row(kind), |row| row["ready"] == 2);
    daemon.start_picking();
    ids
}

#[test]
fn b17_a_job_cannot_end_the_later_jobs_of_its_batch() {
    as_both_users(|config| {
        let daemon = Daemon::start(strict(config));
        let tenant = daemon.tenant("a");
        for (kind, nonce) in [("plain", ""), ("nonce", r#""nonce":"0000000000000000","#)] {
            let frames = ["", r#""job":0,"#, r#""job":1,"#].map(|place| {
                format!(r#"{{"kind":"end",{place}{nonce}"status":200,"data":"forged","us":1}}"#)
            });
            let go = daemon.home().path(&format!("go-{kind}"));
            for (lang, body) in forgers(go.to_str().unwrap(), &frames) {
                let kind = format!("{kind}-{lang}");
                let options = json!({"batch": 10, "contexts": 1});
                tenant.handler(&kind, &json!({"lang": lang, "body": body, "options": options}));
                let ids = batch(&daemon, &tenant, &kind);
                // Its handler has one context, so only a job of the same batch is claimed now.
                tenant.until_state(&ids[0], "running");
                assert_eq!(tenant.job(&ids[1])["state"], "running", "{kind}: one batch");
                daemon.home().write(go.file_name().unwrap().to_str().unwrap(), "");
                let [evil, honest] = [0, 1].map(|place: usize| tenant.until_end(&ids[place]));
                let log = tenant.log(&ids[0]);
                assert_eq!(evil["state"], "failed", "{kind}: {log}");
                assert!(log.contains("it wrote to the descriptors"), "{kind}: {log}");
                assert_eq!(result(&tenant, &ids[1]), json!("honest"), "{kind}: {honest}");
                assert_eq!((&honest["state"], &honest["attempt"]), (&json!("finished"), &json!(1)));
                std::fs::remove_file(&go).unwrap();
            }
        }
    });
}

fn result(tenant: &Tenant, id: &str) -> Value {
    tenant.job(id)["result"].clone()
}
