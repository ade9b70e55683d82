//! `windlass key …`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a key and print it; it is not shown again.
    Create(KeyCreate),
    /// List the keys that may be managed, without their secrets.
    List,
    /// Revoke keys; all daemons refuse them within a second.
    Revoke {
        /// The public part of a key: the 16 characters between the underscores.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Replace a key by a new one for the same role and tenant, and print that.
    Rotate(KeyRotate),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass key create producer --tenant acme --name 'web shop'
  windlass key create worker --tenant acme --expires 90d
  windlass key create metrics --name prometheus")]
pub(crate) struct KeyCreate {
    /// producer, worker, viewer or manager of the tenant; admin or metrics of all tenants.
    #[arg(value_name = "ROLE")]
    pub(crate) role: String,
    /// A name for people.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// How long the key is in force [default: until it is revoked].
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRotate {
    /// The public part of the old key.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How long the old key stays in force [default: 1h].
    #[arg(long, value_name = "DURATION")]
    pub(crate) overlap: Option<String>,
    /// How long the new key is in force [default: until it is revoked].
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
}
