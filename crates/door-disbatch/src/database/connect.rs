//! From the configuration to the driver's options.

use std::time::Duration;

use mongodb::options::{
    ClientOptions, Credential, ReadPreference, ServerAddress, TlsOptions, WriteConcern,
};

use super::{DbError, OPERATION_TIME_MAX};
use crate::config::{Connection, ServerTls, User};

const PORT: u16 = 27017;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const SERVER_SELECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Servers and firewalls drop connections after minutes of idleness, which only the next request
/// would notice.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

pub(super) async fn options(connection: &Connection, user: User) -> Result<ClientOptions, DbError> {
    let wrong = |error| match DbError::from(error) {
        // The driver's error may quote the password in the address.
        DbError::Refused(_) => DbError::Refused("`mongohost` is not an address".to_owned()),
        other => other,
    };
    // `mongodb+srv` addresses cause a DNS lookup here.
    let parse = ClientOptions::parse(connection.uri.reveal()).into_future();
    let mut options = match tokio::time::timeout(OPERATION_TIME_MAX, parse).await {
        Ok(parsed) => parsed.map_err(wrong)?,
        Err(_) => return Err(DbError::unanswered(OPERATION_TIME_MAX)),
    };
    options.app_name.get_or_insert_with(|| format!("windlass {}", user.name()));
    options.connect_timeout.get_or_insert(CONNECT_TIME_MAX);
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION_TIME_MAX);
    options.max_idle_time.get_or_insert(IDLE_TIME_MAX);
    // Claims and limits need writes that no failover can undo, and reads that see the latest write.
    options.write_concern.get_or_insert_with(WriteConcern::majority);
    options.selection_criteria = Some(ReadPreference::Primary.into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Auth;
    use windlass_program::Secret;

    #[tokio::test]
    async fn no_connection_is_idle_for_long_unless_the_address_says_so() {
        let idle_time = async |uri: &str| {
            let (uri, auth) = (Secret::new(uri), Auth::default());
            let connection = Connection { uri, database: "d".to_owned(), auth, tls: None };
            options(&connection, User::Den).await.unwrap().max_idle_time
        };
        assert_eq!(idle_time("mongodb://h").await, Some(IDLE_TIME_MAX));
        let said = idle_time("mongodb://h/?maxIdleTimeMS=5000").await;
        assert_eq!(said, Some(Duration::from_secs(5)));
    }
}
