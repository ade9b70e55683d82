//! Detects silent nodes by observing their entries. Pure.
//!
//! Only the observer's own clock counts. A node is silent if its sign (the beat of one of our
//! nodes, the timestamp of a foreign one, or nothing) has not changed over a series of observations
//! without gaps. An outage of the database is not a node's silence, so all measurements start again
//! after one: it shows as a gap between two observations, or as another server process.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::Bson;

/// The shortest gap between two observations that counts as an outage of the database.
const GAP_MIN: Duration = Duration::from_secs(5);

/// The identity of a node: our nodes have a boot, foreign nodes do not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeIdentity {
    pub(crate) node: String,
    pub(crate) boot: Option<String>,
}

impl NodeIdentity {
    pub(crate) fn ours(node: &str, boot: &str) -> NodeIdentity {
        NodeIdentity { node: node.to_owned(), boot: Some(boot.to_owned()) }
    }

    pub(crate) fn foreign(node: &str) -> NodeIdentity {
        NodeIdentity { node: node.to_owned(), boot: None }
    }
}

/// The life sign in a node's entry; `None` if the entry is gone.
pub(crate) type LifeSign = Option<Bson>;

/// One successful observation of all entries, in the observer's own time.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) sent: Duration,
    pub(crate) received: Duration,
    /// The server process that answered, if it is known.
    pub(crate) server: Option<Bson>,
    pub(crate) signs: Vec<(NodeIdentity, LifeSign)>,
}

#[derive(Debug)]
struct Track {
    sign: LifeSign,
    /// When it was first observed: it may be older, but never younger.
    since: Duration,
}

#[derive(Debug)]
pub(crate) struct Liveness {
    gap_max: Duration,
    tracks: HashMap<NodeIdentity, Track>,
    last: Option<Observation>,
}

impl Liveness {
    pub(crate) fn new(heartbeat: Duration) -> Liveness {
        let gap_max = (heartbeat * 2).max(GAP_MIN);
        Liveness { gap_max, tracks: HashMap::new(), last: None }
    }

    /// A failed observation: the database may have been unavailable for all nodes.
    pub(crate) fn observation_failed(&mut self) {
        self.last = None;
    }

    pub(crate) fn observe(&mut self, observation: Observation) {
        if self.last.as_ref().is_none_or(|last| self.away_between(last, &observation)) {
            self.tracks.clear();
        }
        let mut before = std::mem::take(&mut self.tracks);
        for (who, sign) in &observation.signs {
            let track = match before.remove(who) {
                Some(track) if track.sign == *sign => track,
                _ => Track { sign: sign.clone(), since: observation.received },
            };
            self.tracks.insert(who.clone(), track);
        }
        self.last = Some(observation);
    }

    fn away_between(&self, last: &Observation, observation: &Observation) -> bool {
        observation.received.saturating_sub(last.sent) > self.gap_max
            || last.server != observation.server
    }

    /// How long a node's sign has certainly been unchanged, and the sign; `None` for unknown nodes.
    pub(crate) fn silent(&self, who: &NodeIdentity) -> Option<(Duration, &LifeSign)> {
        let (last, track) = (self.last.as_ref()?, self.tracks.get(who)?);
        Some((last.sent.saturating_sub(track.since), &track.sign))
    }

    /// All nodes whose sign has not changed for at least this long.
    pub(crate) fn silent_for(
        &self,
        time: Duration,
    ) -> impl Iterator<Item = (&NodeIdentity, &LifeSign)> {
        let now = self.last.as_ref().map_or(Duration::ZERO, |last| last.sent);
        let silent = move |track: &Track| now.saturating_sub(track.since) >= time;
        self.tracks.iter().filter(move |(_, t)| silent(t)).map(|(who, t)| (who, &t.sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Observer {
        liveness: Liveness,
        now: u32,
        server: Option<Bson>,
    }

    impl Observer {
        fn new() -> Observer {
            Observer { liveness: Liveness::new(5 * SECOND), now: 0, server: None }
        }

        /// Observes each second until `until`; each answer takes half a second.
        fn observe_until(&mut self, until: u32, sign: LifeSign) {
            while self.now < until {
                self.now += 1;
                self.observe(sign.clone());
            }
        }

        fn observe(&mut self, sign: LifeSign) {
            let sent = self.now * SECOND;
            let signs = vec![(NodeIdentity::ours("a", "b"), sign)];
            let received = sent + SECOND / 2;
            self.liveness.observe(Observation {
                sent,
                received,
                server: self.server.clone(),
                signs,
            });
        }

        fn silent(&self) -> Duration {
            self.liveness
                .silent(&NodeIdentity::ours("a", "b"))
                .map_or(Duration::ZERO, |(time, _)| time)
        }
    }

    fn beat(number: i64) -> LifeSign {
        Some(Bson::Int64(number))
    }

    #[test]
    fn silence_counts_from_an_answer_to_a_question() {
        let mut watch = Observer::new();
        watch.observe_until(31, beat(1));
        assert_eq!(watch.silent(), 29 * SECOND + SECOND / 2);
        assert_eq!(watch.liveness.silent_for(30 * SECOND).count(), 0);
        watch.observe_until(32, beat(1));
        assert_eq!(watch.liveness.silent_for(30 * SECOND).count(), 1);
    }

    #[test]
    fn every_new_sign_is_life() {
        let mut watch = Observer::new();
        watch.observe_until(20, beat(1));
        watch.observe_until(40, beat(2));
        assert!(watch.silent() < 20 * SECOND);
        // A decreasing beat is a life sign too: the node wrote it.
        watch.observe_until(41, beat(1));
        assert_eq!(watch.silent(), Duration::ZERO);
        watch.observe_until(60, None);
        assert!(watch.silent() < 20 * SECOND, "an entry that is gone is watched as such");
    }

    #[test]
    fn after_a_gap_everybody_has_time_to_come_back() {
        let mut watch = Observer::new();
        watch.observe_until(20, beat(1));
        watch.now += 9;
        watch.observe_until(30, beat(1));
        assert_eq!(watch.silent(), Duration::ZERO);
        watch.observe_until(35, beat(1));
        watch.now += 8;
        watch.observe_until(44, beat(1));
        assert!(watch.silent() > 13 * SECOND, "a short one is none");
    }

    #[test]
    fn a_look_that_failed_is_a_gap() {
        let mut watch = Observer::new();
        watch.observe_until(20, beat(1));
        watch.liveness.observation_failed();
        watch.observe_until(21, beat(1));
        assert_eq!(watch.silent(), Duration::ZERO);
        watch.observe_until(25, beat(1));
        assert!(watch.silent() > 3 * SECOND);
    }

    #[test]
    fn another_process_of_the_server_is_a_gap() {
        let mut watch = Observer::new();
        watch.observe_until(20, beat(1));
        watch.server = Some(Bson::Int32(2));
        watch.observe_until(21, beat(1));
        assert_eq!(watch.silent(), Duration::ZERO);
        watch.observe_until(25, beat(1));
        assert!(watch.silent() > 3 * SECOND);
    }

    #[test]
    fn who_is_not_seen_is_not_judged() {
        let mut watch = Observer::new();
        watch.observe_until(20, beat(1));
        let empty = Observation { signs: Vec::new(), ..watch.liveness.last.clone().unwrap() };
        watch.liveness.observe(empty);
        assert!(watch.liveness.silent(&NodeIdentity::ours("a", "b")).is_none());
        assert!(watch.liveness.silent(&NodeIdentity::foreign("a")).is_none());
    }
}
