//! What code in a warm context cannot reach: files, processes and privileges of others, and more of
//! the machine than its options allow.

use serde_json::{Value, json};

use crate::harness::{Case, Stage, in_every_language, text};

/// Sources that try to open the file or directory named by the payload, for reading and for
/// writing.
const NODE: &str = "
    const fs = require('fs');
    const can = (attempt) => { try { attempt(); return true; } catch { return false; } };
    return {data: {
        dir: process.env.WINDLASS_DIR, pid: process.pid,
        read: can(() => fs.closeSync(fs.openSync(payload, 'r'))),
        write: can(() => fs.closeSync(fs.openSync(payload, 'a'))),
        make: can(() => fs.writeFileSync(payload + '/made', 'x')),
    }};";
const PYTHON: &str = "
    import os
    def can(name, flags):
        try:
            os.close(os.open(name, flags))
            return True
        except OSError:
            return False
    return {'data': {
        'dir': os.environ['WINDLASS_DIR'], 'pid': os.getpid(),
        'read': can(payload, os.O_RDONLY), 'write': can(payload, os.O_WRONLY | os.O_APPEND),
        'make': can(payload + '/made', os.O_WRONLY | os.O_CREAT),
    }}";
const PHP: &str = "
    $can = fn($name, $mode) => (bool) @fopen($name, $mode);
    return ['data' => [
        'dir' => getenv('WINDLASS_DIR'), 'pid' => getmypid(),
        'read' => is_dir($payload) ? (bool) @opendir($payload) : $can($payload, 'r'),
        'write' => !is_dir($payload) && $can($payload, 'a'),
        'make' => $can($payload . '/made', 'w'),
    ]];";

/// One job must fail because of a limit; the others of its batch and the type continue.
#[track_caller]
fn over_the_limit(t: &Case, mut options: Value, word: &str) {
    options["contexts"] = json!(1);
    options["batch"] = json!(10);
    let stage = t.only_for("fault").stage();
    stage.set("t", options);
    let payloads = ["0", "1", "fault", "3", "4"];
    for (id, payload) in stage.batch("t", &payloads).iter().zip(payloads) {
        let job = stage.end(id);
        match payload {
            "fault" => stage.failed(&job, word),
            _ => stage.succeeded(&job),
        }
    }
    stage.succeeded(&stage.run("t", "again"));
}

#[track_caller]
fn out_of_reach(stage: &Stage, path: &str) {
    let seen = stage.data("t", path);
    for way in ["read", "write", "make"] {
        assert_eq!(seen[way], false, "{way} {path}: {seen}");
    }
}

in_every_language! {
    fn files_of_others_are_out_of_reach(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "10m"}));
        let home = stage.daemon.home();
        // Next to the data directory, not among the files that the tests' handlers may use.
        let secret = home.data().with_file_name("secret");
        std::fs::write(&secret, "of the operator").unwrap();
        let other = stage.daemon.tenant("b");
        other.handler("t", &stage.handler(json!({"contexts": 1, "idle": "10m"})));
        let theirs = other.until_end(&other.add_one("t", "x"))["result"].clone();
        let mut paths = vec![
            secret.to_str().unwrap().to_owned(),
            home.data().to_str().unwrap().to_owned(),
            home.store().to_str().unwrap().to_owned(),
            home.journal().to_str().unwrap().to_owned(),
            "/etc/shadow".to_owned(),
            "/root/.cargo".to_owned(),
            "/var".to_owned(),
            format!("/proc/{}/environ", stage.daemon.pid()),
            format!("/proc/{}/mem", stage.daemon.pid()),
            format!("/proc/{}/cwd/Cargo.toml", stage.daemon.pid()),
            format!("/proc/{}/root/etc/shadow", stage.daemon.pid()),
            format!("/proc/{}/environ", theirs["pid"]),
            format!("/proc/{}/fd/1", theirs["pid"]),
            home.data().join("scratch").to_str().unwrap().to_owned(),
            home.data().join("scratch/1").to_str().unwrap().to_owned(),
        ];
        // The daemon's open files, by their descriptor numbers.
        let numbers = std::fs::read_dir(format!("/proc/{}/fd", stage.daemon.pid())).unwrap();
        paths.extend(numbers.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()));
        for path in paths {
            out_of_reach(&stage, &path);
        }
        assert_eq!(stage.data("t", ".")["make"], true, "its own directory is its own");
    }

    /// What can be read cannot be written.
    fn the_system_is_read_only(t) {
        node: NODE, python: PYTHON, php: PHP,
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1}));
        for path in ["/usr", "/usr/bin", "/bin/sh", "/etc/resolv.conf", "/dev"] {
            let seen = stage.data("t", path);
            assert_eq!((&seen["write"], &seen["make"]), (&json!(false), &json!(false)), "{path}");
        }
        assert_eq!(stage.data("t", "/bin/sh")["read"], true);
        assert_eq!(stage.data("t", "/dev/null")["write"], true);
    }

    /// The daemon, and a context of another tenant.
    fn processes_of_others_cannot_be_signalled(t) {
        node: "try { process.kill(Number(payload), 'SIGKILL'); return {data: 'sent'}; }
               catch (e) { return {data: process.pid}; }",
        python: "
            import os
            try:
                os.kill(int(payload), 9)
            except OSError:
                return {'data': os.getpid()}
            return {'data': 'sent'}",
        php: "return ['data' => posix_kill((int) $payload, 9) ? 'sent' : getmypid()];",
    } {
        let stage = t.stage();
        stage.set("t", json!({"contexts": 1, "idle": "10m"}));
        let other = stage.daemon.tenant("b");
        other.handler("t", &stage.handler(json!({"contexts": 1, "idle": "10m"})));
        let theirs = other.until_end(&other.add_one("t", "999999999"))["result"].clone();
        assert!(stage.data("t", &theirs.to_string()).is_number());
        assert!(stage.data("t", &stage.daemon.pid().to_string()).is_number());
        let again = other.until_end(&other.add_one("t", "999999999"))["result"].clone();
        assert_eq!(again, theirs, "it lives");
    }

    fn a_context_has_a_session_of_its_own_and_no_privileges(t) {
        node: "return {data: require('fs').readFileSync('/proc/self/status', 'utf8') +
                             require('fs').readFileSync('/proc/self/stat', 'utf8')};",
        python: "
            status, stat = open('/proc/self/status'), open('/proc/self/stat')
            return {'data': status.read() + stat.read()}",
        php: "return ['data' => file_get_contents('/proc/self/status') .
                                file_get_contents('/proc/self/stat')];",
    } {
        let stage = t.stage();
        stage.set("t", json!({}));
        let seen = text(&stage.data("t", "x"));
        let line = |name: &str| {
            let line = seen.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("no {name} in {seen}")).split('\t').next_back().unwrap()
        };
        assert_eq!(line("NoNewPrivs:"), "1");
        for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(line(name), "0000000000000000", "{name}");
        }
        // After the name in brackets: state, parent, process group, session.
        let fields: Vec<&str> = seen.rsplit(") ").next().unwrap().split(' ').collect();
        assert_eq!((fields[2], fields[3]), (line("Pid:"), line("Pid:")), "it leads both");
    }

    fn out_of_memory(t) {
        node: "const all = []; for (;;) all.push(Buffer.alloc(10_000_000, 1));",
        python: "all = []\nwhile True:\n    all.append(bytearray(10_000_000))",
        php: "$all = []; for (;;) $all[] = str_repeat('x', 10000000);",
        sh: "x=$(head -c 600000000 /dev/zero | tr '\\0' x); echo ${#x}",
    } { over_the_limit(t, json!({"memory": "400MB", "timeout": "30s"}), ""); }

    fn out_of_memory_in_small_pieces(t) {
        node: "const all = []; for (;;) all.push({some: [all.length]});",
        python: "all = []\nwhile True:\n    all.append([len(all)])",
        php: "$all = []; for (;;) $all[] = [count($all)];",
    } { over_the_limit(t, json!({"memory": "200MB", "timeout": "30s"}), ""); }

    fn too_many_processes(t) {
        node: "for (let n = 0; n < 60; n++) {
                   require('child_process').spawn('sleep', ['600'], {stdio: 'ignore'});
               }
               await new Promise(() => {});",
        python: "
            import subprocess, time
            for _ in range(60):
                subprocess.Popen(['sleep', '600'])
            time.sleep(600)",
        php: "for ($n = 0; $n < 60; $n++) exec('sleep 600 > /dev/null 2>&1 &');
              sleep(600);",
        sh: "for n in $(seq 60); do sleep 600 & done; wait",
    } { over_the_limit(t, json!({"processes": 30, "timeout": "30s"}), "process"); }

    fn too_much_processor_time(t) {
        node: "for (;;);",
        python: "while True:\n    pass",
        php: "for (;;);",
        sh: "while :; do :; done",
    } { over_the_limit(t, json!({"cpu": "1s", "timeout": "30s"}), "CPU time"); }

    fn too_large_a_file(t) {
        node: "require('fs').writeFileSync('file', Buffer.alloc(3_000_000));",
        python: "
            with open('file', 'wb') as file:
                file.write(bytes(3_000_000))",
        php: "if (file_put_contents('file', str_repeat('x', 3000000)) !== 3000000) {
                  throw new Exception('it was not written');
              }",
        sh: "head -c 3000000 /dev/zero > file",
    } { over_the_limit(t, json!({"file_size": "1MB", "timeout": "30s"}), ""); }
}
