//! From the configuration to the driver's options.

use std::time::Duration;

use mongodb::options::{ClientOptions, Credential, ServerAddress, TlsOptions};

use super::DbError;
use crate::config::{Connection, ServerTls, User};

const PORT: u16 = 27017;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const SERVER_SELECTION_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) async fn options(connection: &Connection, user: User) -> Result<ClientOptions, DbError> {
    let wrong = |error| match DbError::from(error) {
        // What the driver says of an address may quote the password in it.
        DbError::Refused(_) => DbError::Refused("`mongohost` is not an address".to_owned()),
        other => other,
    };
    let mut options = ClientOptions::parse(connection.uri.reveal()).await.map_err(wrong)?;
    options.app_name.get_or_insert_with(|| format!("windlass {}", user.name()));
    options.connect_timeout.get_or_insert(CONNECT_TIME_MAX);
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION_TIME_MAX);
    if let Some(password) = connection.password(user) {
        let credential = Credential::builder()
            .username(user.name().to_owned())
            .password(password.reveal().to_owned())
            .source(connection.database.clone())
            .build();
        options.credential = Some(credential);
    }
    if let Some(tls) = &connection.tls {
        options.tls = Some(tls_options(tls).into());
    }
    Ok(options)
}

pub(super) fn hosts(options: &ClientOptions) -> Vec<(String, u16)> {
    let host = |address: &ServerAddress| match address {
        ServerAddress::Tcp { host, port } => Some((host.clone(), port.unwrap_or(PORT))),
        _ => None,
    };
    options.hosts.iter().filter_map(host).collect()
}

fn tls_options(tls: &ServerTls) -> TlsOptions {
    let mut options = TlsOptions::default();
    options.ca_file_path.clone_from(&tls.ca_file);
    options.allow_invalid_certificates = (!tls.verify).then_some(true);
    options
}
