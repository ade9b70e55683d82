//! `windlass audit`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass audit --since 24h
  windlass audit --of acme --action handler_set
  windlass audit --by 5f0c1d2e3a4b5c6d --since 2026-11-01T00:00:00Z --json")]
pub(crate) struct Audit {
    /// Only entries of this tenant.
    #[arg(long, value_name = "TENANT")]
    pub(crate) of: Option<String>,
    /// Only acts of the key with this ID.
    #[arg(long, value_name = "ID")]
    pub(crate) by: Option<String>,
    /// Only this action: the ID of an operation of the API, such as key_create.
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Only entries from this time on: a time, or how long ago.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only entries before this time: a time, or how long ago.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Maximum number of entries.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Continue from this cursor (printed after the previous page).
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}
