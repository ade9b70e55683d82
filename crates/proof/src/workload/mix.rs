//! Which features a run has, and in what proportion.
//!
//! A run with everything in it rarely reaches the corners: each feature disturbs the others. So a
//! swarm leaves out about half of them, differently for each seed, and weighs the others anew.

use super::generator;

/// What an operation may be, or what an add may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// Adds of one ordinary job; always there.
    Plain,
    /// Adds of several jobs.
    Lines,
    /// Payloads of up to a few MiB.
    Large,
    Unique,
    Idempotent,
    Parent,
    Then,
    Repeat,
    Delay,
    Priority,
    /// Handlers that emit jobs.
    Emit,
    /// Jobs that fail if they have not ended after a time.
    Expiry,
    /// Attempts that add jobs below their own.
    Children,
    /// Attempts that report their progress.
    Progress,
    /// Adds over Bedrock.
    Bedrock,
    /// Adds of very many jobs.
    Glut,
    /// Attempts that fail or ask to be retried.
    Failing,
    /// Cancels, deletes and requeues over Bedrock.
    BedrockChange,
    Cancel,
    Retry,
    Delete,
    Suspend,
    Handler,
    Concurrency,
    Rate,
    /// Requests that must be refused.
    Invalid,
}

impl Feature {
    pub const ALL: [Feature; 26] = [
        Feature::Plain,
        Feature::Lines,
        Feature::Large,
        Feature::Unique,
        Feature::Idempotent,
        Feature::Parent,
        Feature::Then,
        Feature::Repeat,
        Feature::Delay,
        Feature::Priority,
        Feature::Emit,
        Feature::Expiry,
        Feature::Children,
        Feature::Progress,
        Feature::Bedrock,
        Feature::Glut,
        Feature::Failing,
        Feature::BedrockChange,
        Feature::Cancel,
        Feature::Retry,
        Feature::Delete,
        Feature::Suspend,
        Feature::Handler,
        Feature::Concurrency,
        Feature::Rate,
        Feature::Invalid,
    ];

    /// Whether it is a property of an add, so that one add can have several.
    pub fn is_of_add(self) -> bool {
        self <= Feature::Failing
    }

    /// Whether it changes how jobs of a type are served.
    pub fn is_of_type(self) -> bool {
        matches!(self, Feature::Suspend | Feature::Handler | Feature::Concurrency | Feature::Rate)
    }

    /// Its weight in a mix of everything. Changes of types are rare: each concerns many jobs.
    fn usual_weight(self) -> u32 {
        match self {
            Feature::Plain => 30,
            Feature::Lines | Feature::Failing | Feature::Emit => 8,
            Feature::Large | Feature::Repeat | Feature::Glut => 1,
            Feature::BedrockChange => 2,
            Feature::Suspend | Feature::Handler | Feature::Concurrency | Feature::Rate => 2,
            _ => 5,
        }
    }
}

/// Who runs the jobs of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Served {
    /// Daemons, with a handler.
    Handler,
    /// Workers that pull over HTTP.
    Pull,
    /// Bedrock workers.
    Bedrock,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMix {
    pub name: String,
    pub served: Served,
}

/// The composition of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    pub tenants: Vec<String>,
    /// Each tenant has all of these.
    pub types: Vec<TypeMix>,
    /// Most jobs in one add.
    pub count_max: u32,
    /// Jobs in an add of very many.
    pub glut_count: u32,
    /// The first tenants, whose jobs Bedrock workers and clients see.
    pub bedrock_tenants: usize,
    pub payload_bytes_max: u64,
    weights: [u32; Feature::ALL.len()],
}

/// Tenants and types of a mix.
const TENANTS_MAX: usize = 4;
const TYPES_MAX: usize = 6;
/// Most jobs in one add.
const COUNT_MAX: u32 = 50;
const GLUT_COUNT: u32 = 500;
/// Largest payload.
const PAYLOAD_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Largest weight of a feature in a swarm.
const SWARM_WEIGHT_MAX: u32 = 20;

impl Mix {
    /// Every feature, three tenants, two types for each kind of consumer.
    pub fn everything() -> Mix {
        Mix {
            tenants: names("tenant", 3),
            types: types([Served::Handler, Served::Pull, Served::Bedrock].repeat(2)),
            count_max: COUNT_MAX,
            glut_count: GLUT_COUNT,
            bedrock_tenants: usize::MAX,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            weights: Feature::ALL.map(Feature::usual_weight),
        }
    }

    /// A random subset of features, tenants and types, derived from the seed.
    pub fn swarm(seed: u64) -> Mix {
        let mut rng = generator(seed, "mix", 0);
        let mut mix = Mix::everything();
        mix.tenants = names("tenant", rng.usize(1..=TENANTS_MAX));
        let served = [Served::Handler, Served::Pull, Served::Bedrock];
        let count = rng.usize(1..=TYPES_MAX);
        mix.types = types((0..count).map(|_| served[rng.usize(..served.len())]));
        mix.count_max = rng.u32(2..=COUNT_MAX);
        for feature in Feature::ALL {
            let weight = if rng.bool() { rng.u32(1..=SWARM_WEIGHT_MAX) } else { 0 };
            mix.set(feature, weight);
        }
        mix
    }

    /// Whether there is a consumer for this tenant's jobs of this type; both are indexes.
    pub fn is_served(&self, tenant: usize, of: usize) -> bool {
        self.types[of].served != Served::Bedrock || tenant < self.bedrock_tenants
    }

    pub fn weight(&self, feature: Feature) -> u32 {
        self.weights[feature as usize]
    }

    /// Sets a weight; 0 leaves the feature out. Plain adds cannot be left out.
    pub fn set(&mut self, feature: Feature, weight: u32) {
        let least = u32::from(feature == Feature::Plain);
        self.weights[feature as usize] = weight.max(least);
    }

    pub fn has(&self, feature: Feature) -> bool {
        self.weight(feature) > 0
    }

    /// A feature, by weight, of those that `wanted` accepts; plain if there are none.
    pub(super) fn draw(
        &self,
        rng: &mut fastrand::Rng,
        wanted: impl Fn(Feature) -> bool,
    ) -> Feature {
        let candidates = || Feature::ALL.into_iter().filter(|feature| wanted(*feature));
        let total: u32 = candidates().map(|feature| self.weight(feature)).sum();
        let mut left = rng.u32(..total.max(1));
        for feature in candidates() {
            let weight = self.weight(feature);
            if left < weight {
                return feature;
            }
            left -= weight;
        }
        Feature::Plain
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

fn types(served: impl IntoIterator<Item = Served>) -> Vec<TypeMix> {
    let named = (0..).zip(served).map(|(number, served): (usize, _)| {
        let kind = match served {
            Served::Handler => "run",
            Served::Pull => "pull",
            Served::Bedrock => "bedrock",
        };
        TypeMix { name: format!("{kind}-{number}"), served }
    });
    named.collect()
}
