//! Random crashes of daemons and handlers, with a fixed seed: nothing is lost.

use std::collections::{HashMap, HashSet};

use crate::harness::{Cluster, Config, Random, text, until};

const SEED: u64 = 20_261_115;
const JOBS: usize = 300;
const DAEMON_KILLS: usize = 8;

/// Each job dies by signal on its first attempt with a chance of one in five, by its number.
#[test]
fn s2_6_random_kills_of_daemons_and_handlers_lose_no_job() {
    let config = Config::new()
        .set("lease.duration", "\"1s\"")
        .set("retry.delay", "\"100ms\"")
        .set("retry.attempts", "50")
        .set("scheduler.slots", "4");
    let mut cluster = Cluster::start(2, config);
    let body = format!(
        "case $WINDLASS_ATTEMPT$WINDLASS_JOB_ID in 1*[05]) kill -9 $$;; esac; sleep 0.02; {}; \
         echo \"J: out|$WINDLASS_JOB_ID\"",
        cluster.home().recorder("seen")
    );
    cluster[0].tenant("a").sh("t", &body);
    let mut random = Random::new(SEED);
    let mut ids = Vec::new();
    let mut kills = 0;
    while ids.len() < JOBS {
        let added = random.below(JOBS as u64 / DAEMON_KILLS as u64) as usize + 1;
        let through = random.below(2) as usize;
        let payloads: Vec<String> = (0..added).map(|n| n.to_string()).collect();
        ids.extend(cluster[through].tenant("a").add("t", &payloads));
        if kills < DAEMON_KILLS {
            // Wait until something has happened since the last kill, so that it hits work.
            let done = cluster.home().lines("seen").len();
            let some = random.below(10) as usize;
            until(
                "some jobs ran",
                || cluster.home().lines("seen").len(),
                |n| *n >= (done + some).min(ids.len() / 2),
            );
            let victim = random.below(2) as usize;
            cluster[victim].kill9();
            cluster[victim].restart();
            kills += 1;
        }
    }
    cluster[0].tenant("a").until_all(&ids, "finished");
    let mut runs: HashMap<String, usize> = HashMap::new();
    for line in cluster.home().lines("seen") {
        *runs.entry(line.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    let lost = ids.iter().filter(|id| !runs.contains_key(*id)).count();
    let twice = runs.values().filter(|count| **count > 1).count();
    eprintln!("{} jobs, {kills} kills: {lost} lost, {twice} ran to their end twice", ids.len());
    assert_eq!(lost, 0);
    let tenant = cluster[1].tenant("a");
    let mut emitted = HashSet::new();
    until(
        "the output of every job is queued",
        || {
            emitted.extend(tenant.claim("out", 500, "60s").iter().map(|j| text(&j["payload"])));
            ids.iter().filter(|id| !emitted.contains(*id)).count()
        },
        |missing| *missing == 0,
    );
    assert_eq!(runs.len(), ids.len(), "nothing ran that was not added");
}
