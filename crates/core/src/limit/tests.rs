//! Every bound with its value, once more: clients, stores and files rely on them, so none changes
//! by accident.

use super::*;

/// Compares each bound with its value. Returns the names.
macro_rules! values {
    ($($name:ident = $value:expr;)*) => {{
        $(assert_eq!($name, $value, stringify!($name));)*
        [$(stringify!($name)),*]
    }};
}

fn secs(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn check_bounds() -> Vec<&'static str> {
    let names = values! {
        TENANT_BYTES_MAX = 64;
        TYPE_BYTES_MAX = 255;
        KEY_BYTES_MAX = 255;
        PRIORITY_MAX = 1000;
        PRIORITY_DEFAULT = 500;
        PAYLOAD_INLINE_BYTES_MAX = 1_048_576;
        PAYLOAD_PIECE_BYTES = 262_144;
        WHOLE_BYTES_MAX = 67_108_864;
        RESULT_BYTES_MAX = 16_777_216;
        LOG_BYTES_MAX = 65_536;
        LOG_LINE_BYTES_MAX = 8192;
        LOG_ATTEMPTS_MAX = 25;
        EMITTED_MAX = 10_000;
        HANDLER_BYTES_MAX = 4_194_304;
        MEMORY_BYTES_MIN = 4_194_304;
        SCRATCH_BYTES_MIN = 8_388_608;
        PROCESSES_MAX = 100_000;
        DESTINATIONS_MAX = 100;
        HANDLER_VERSIONS_MAX = 100;
        BATCH_JOBS_MAX = 10_000;
        PAGE_JOBS_MAX = 1000;
        CHILDREN_SHOWN_MAX = 100_000;
        ORPHAN_RETENTION = secs(259_200);
        REPEATED_RETENTION = secs(345_600);
        ORPHAN_PIECES_AGE = secs(86_400);
        SYSID_MAX = 4095;
        DAEMON_TEXT_BYTES_MAX = 1000;
        DAEMON_LAYERS_MAX = 16;
        DAEMON_GONE_RETENTION = secs(86_400);
        DAEMON_LEFT_RETENTION = secs(7_776_000);
        ID_BORROW_MAX = secs(31_622_400);
        CLOCK_STEP_MIN = secs(60);
        IDEMPOTENCY_TTL = secs(86_400);
        DURATION_MAX = secs(316_224_000);
        KEYS_MAX = 100_000;
        TENANT_KEYS_MAX = 1000;
        KEY_NAME_BYTES_MAX = 100;
        KEY_TOUCH_INTERVAL = secs(60);
        KEY_RETENTION = secs(2_592_000);
        AUDIT_TEXT_BYTES_MAX = 200;
        AUDIT_LOOK_MAX = 10_000;
        SECRETS_MAX = 200;
        SECRET_NAME_BYTES_MAX = 100;
        SECRET_BYTES_MAX = 65_536;
        SECRET_MASKED_BYTES_MIN = 4;
        HANDLER_SECRETS_MAX = 20;
        SEAL_KEYS_MAX = 16;
        TENANT_SETTINGS_MAX = 100_000;
        PROGRESS_BYTES_MAX = 1024;
    };
    names.to_vec()
}

/// What clients may set or ask for.
fn check_ranges() -> Vec<&'static str> {
    let names = values! {
        PULL_JOBS = Range::new(1, 1000);
        PULL_PAYLOAD_BYTES_MAX = 16_777_216;
        WEIGHT = Range::new(1, 1000);
        TENANT_SLOTS = Range::new(1, 100_000);
        CONCURRENCY = Range::new(1, 1_000_000);
        RATE = Range::new(0.000_001, 1_000_000.0);
        TIMEOUT = Range::new(millis(1), secs(316_224_000));
        RETENTION = Range::new(Duration::ZERO, secs(316_224_000));
        RETRY_DELAY = Range::new(Duration::ZERO, secs(316_224_000));
        RETRY_FACTOR = Range::new(1.0, 1000.0);
        RETRY_ATTEMPTS = Range::new(1, 1_000_000);
        RETRY_AGE = Range::new(Duration::ZERO, secs(316_224_000));
        BATCH = Range::new(1, 1000);
        CONTEXTS = Range::new(1, 100);
        CONTEXT_JOBS = Range::new(1, 1_000_000);
        IDLE = Range::new(Duration::ZERO, secs(316_224_000));
        MEMORY = Range::new(4_194_304, u64::MAX);
        CPU = Range::new(millis(1), secs(316_224_000));
        PROCESSES = Range::new(1, 100_000);
        FILE_SIZE = Range::new(1, u64::MAX);
        SCRATCH = Range::new(8_388_608, u64::MAX);
    };
    names.to_vec()
}

#[test]
fn every_bound_has_its_value() {
    let names = [check_bounds(), check_ranges()].concat();
    let source = include_str!("../limit.rs");
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    let constants: Vec<&str> = constants.filter_map(|rest| rest.split(':').next()).collect();
    assert_eq!(constants, names, "a new bound belongs in the table");
}
