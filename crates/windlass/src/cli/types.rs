//! `windlass types …`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Types {
    /// List the types of the tenant with their numbers.
    List,
    /// Start no further job of a type; adds are still accepted.
    Suspend {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
    /// Run a suspended type again.
    Resume {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
}
