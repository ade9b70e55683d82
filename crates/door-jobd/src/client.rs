//! A client for a worker or a master.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::log::Log;
use crate::net::{self, Handler, Peer};
use crate::wire::Json;

/// A connection without a password.
pub struct Client(Peer);

impl Client {
    pub async fn connect(host: &str, port: u16) -> io::Result<Client> {
        net::connect(host, port, None, Arc::new(RefuseAll), &Log::quiet()).await.map(Client)
    }

    /// The answer as JSON. `data` is JSON, too; an error is a message.
    pub async fn ask(
        &self,
        kind: &str,
        data: Option<&str>,
        time_max: Duration,
    ) -> Result<String, String> {
        let data = data.map(serde_json::from_str::<Json>).transpose();
        let data = data.map_err(|error| format!("the data of '{kind}' is not JSON: {error}"))?;
        let answer = self.0.ask(kind, data).within(time_max).await;
        answer.map(|data| data.to_string()).map_err(|error| error.to_string())
    }
}

/// Refuses all requests of the peer.
pub(crate) struct RefuseAll;

#[async_trait]
impl Handler for RefuseAll {
    async fn handle(&self, _: &Peer, kind: &str, _: Json) -> Result<Json, String> {
        Err(format!("unknown request type: '{kind}'"))
    }
}
