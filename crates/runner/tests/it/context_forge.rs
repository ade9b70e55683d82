//! The code of a job can write to the descriptor on which its context answers, but it cannot speak
//! for another job there.

use windlass_core::runner::{Assignment, Report};
use windlass_core::{HandlerSpec, Lang};

use crate::harness::{Event, fixture, job, spec};

/// Runs two jobs in one batch, `evil` and `honest`, and returns the report of the honest one.
async fn honest_report(handler: HandlerSpec) -> Report {
    let fixture = fixture();
    let jobs: Vec<Assignment> = vec![job(b"evil"), job(b"honest")];
    let run = fixture.begin(handler, jobs);
    let honest = run.ids[1];
    let mut ends: Vec<Report> = Vec::new();
    for event in run.rest().await {
        match event {
            Event::Ended(id, report) if id == honest => ends.push(report),
            Event::Progress(id, percent, _) => panic!("progress of {id}: {percent}"),
            _ => {}
        }
    }
    assert_eq!(ends.len(), 1, "each job has one end: {ends:?}");
    ends.remove(0)
}

/// In each language: writes frames to descriptor 4, and ends only when it is killed.
fn forger(lang: Lang, frames: &[&str]) -> HandlerSpec {
    let texts = serde_json::to_string(frames).unwrap();
    let body = match lang {
        Lang::Node => format!(
            "if (payload === 'honest') return 'honest';\n\
             for (const text of {texts}) {{\n\
             \x20 const frame = Buffer.alloc(4 + text.length);\n\
             \x20 frame.writeUInt32BE(text.length); frame.write(text, 4);\n\
             \x20 require('fs').writeSync(4, frame);\n\
             }}\n\
             await new Promise(() => setInterval(() => {{}}, 1000))"
        ),
        Lang::Python => format!(
            "import os, time\n\
             if payload == 'honest': return 'honest'\n\
             for text in {texts}: os.write(4, len(text).to_bytes(4, 'big') + text.encode())\n\
             while True: time.sleep(1)"
        ),
        _ => format!(
            "if ($payload === 'honest') return 'honest';\n\
             $out = fopen('php://fd/4', 'w');\n\
             foreach (json_decode('{texts}') as $text)\n\
             \x20 fwrite($out, pack('N', strlen($text)) . $text);\n\
             while (true) sleep(1);"
        ),
    };
    spec(lang, &body)
}

const LANGUAGES: [Lang; 3] = [Lang::Node, Lang::Python, Lang::Php];

#[tokio::test]
async fn a_job_cannot_end_the_jobs_after_it() {
    for nonce in ["", r#""nonce":"0000000000000000","#] {
        let ends = [0, 1].map(|place| {
            format!(r#"{{"kind":"end","job":{place},{nonce}"status":200,"data":"forged","us":1}}"#)
        });
        for lang in LANGUAGES {
            let report = honest_report(forger(lang, &[&ends[0], &ends[1]])).await;
            let data = report.data.as_ref().map(|data| data.as_str());
            assert_eq!(data, Some("\"honest\""), "{lang:?} {nonce}: {}", report.log);
        }
    }
}

/// Code that an earlier job left behind acts while a later one runs.
#[tokio::test]
async fn a_job_cannot_add_jobs_or_progress_for_a_later_one() {
    let emit = r#"{"kind":"emit","type":"forged","payload":"x"}"#;
    let progress = r#"{"kind":"progress","percent":50}"#;
    for frame in [emit, progress] {
        let body = format!(
            "import os, threading, time\n\
             if payload == 'honest':\n\
             \x20 ctx.runs.set()\n\
             \x20 while True: time.sleep(1)\n\
             ctx.runs = threading.Event()\n\
             def forge():\n\
             \x20 ctx.runs.wait()\n\
             \x20 text = {frame:?}\n\
             \x20 os.write(4, len(text).to_bytes(4, 'big') + text.encode())\n\
             threading.Thread(target=forge, daemon=True).start()"
        );
        let report = honest_report(spec(Lang::Python, &body)).await;
        assert!(report.emitted.is_empty(), "{frame}: {:?}", report.emitted);
        assert_eq!(report.status.get(), 500, "the context is ended: {}", report.log);
    }
}
