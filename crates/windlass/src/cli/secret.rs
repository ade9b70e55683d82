//! `windlass secret …`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    /// Set a secret; its value is read from standard input.
    Set(SecretSet),
    /// List the secrets of the tenant, without their values.
    List,
    /// Remove secrets; jobs of handlers that name them fail.
    Rm {
        /// Names of secrets.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Encrypt the secrets of all tenants with a new key, and drop the old one.
    Rekey,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass secret set STRIPE_KEY < stripe.txt
  pass show stripe | windlass secret set STRIPE_KEY
  windlass handler set charge charge.py --secret STRIPE_KEY

One line feed at the end of the input is not part of the value, since most programs add one; --exact
keeps it. On a terminal, the value is one line, which is not shown. It is never an argument: other
users would see it in the list of processes.")]
pub(crate) struct SecretSet {
    /// Capital letters, digits and underscores.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Take the input as it is, with its last line feed.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Refused, with the reason.
    #[arg(hide = true)]
    pub(crate) value: Vec<String>,
}
