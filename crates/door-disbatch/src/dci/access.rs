//! Access control: users with a plain or argon2-hashed password, and bearer tokens.
//!
//! Valid credentials are cached, so that a hash is not computed for each request. A wrong guess
//! costs time and one of a few slots, so that guessing stays slow regardless of the number of
//! connections. A guess waits for its slot before it is checked, so timing reveals nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use windlass_core::sync::lock;

use super::error::Failure;
use crate::config::Access;
use crate::config::access::{argon2_hash, is_hashed};

/// Maximum number of concurrent checks, including the penalty delay of wrong credentials. Few,
/// because hashes are slow and large by design.
const CHECKS_MAX: usize = 4;
/// How long a wrong check occupies its slot.
const WRONG_DELAY: Duration = Duration::from_millis(500);
/// How long a request waits for a slot.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum number of cached credentials; a full cache is cleared.
const ACCEPTED_MAX: usize = 1024;

type SaltedDigest = [u8; 32];

/// Guards everything except the page's own files.
#[derive(Clone)]
pub(crate) struct Guard(Option<Arc<Inner>>);

struct Inner {
    known: KnownLogins,
    /// Digests of accepted credentials.
    accepted: Mutex<HashSet<SaltedDigest>>,
    checks: Arc<Semaphore>,
}

struct KnownLogins {
    salt: SaltedDigest,
    users: Vec<(SaltedDigest, Password)>,
    tokens: Vec<SaltedDigest>,
}

enum Password {
    Plain(SaltedDigest),
    Hash(Box<PasswordHash>),
}

impl Guard {
    /// Fails if the configuration contains an invalid hash.
    pub(crate) fn new(access: &Access) -> Result<Guard, String> {
        if access.is_open() {
            return Ok(Guard(None));
        }
        let mut salt = SaltedDigest::default();
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut salt).map_err(|_| "the machine gives no random numbers".to_owned())?;
        let mut known = KnownLogins { salt, users: Vec::new(), tokens: Vec::new() };
        for (name, secret) in &access.users {
            let password = if is_hashed(secret.reveal()) {
                let half = || format!("users: the argon2 hash of '{name}' is not whole");
                Password::Hash(Box::new(argon2_hash(secret.reveal()).ok_or_else(half)?))
            } else {
                Password::Plain(known.digest_of(secret.reveal().as_bytes()))
            };
            known.users.push((known.digest_of(name.as_bytes()), password));
        }
        known.tokens =
            access.tokens.iter().map(|token| known.digest_of(token.reveal().as_bytes())).collect();
        let (accepted, checks) = (Mutex::default(), Arc::new(Semaphore::new(CHECKS_MAX)));
        Ok(Guard(Some(Arc::new(Inner { known, accepted, checks }))))
    }

    /// Whether everyone has access.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            return Err(refused("log in, as a user or with a token"));
        };
        let digest = inner.known.digest_of(given.as_bytes());
        if inner.accepted().contains(&digest) {
            return Ok(());
        }
        let check_permit = inner.checks.clone().acquire_owned();
        let Ok(Ok(check_permit)) = tokio::time::timeout(CHECK_WAIT_MAX, check_permit).await else {
            let message = "too many wrong logins; try again in a moment";
            return Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, message));
        };
        let Some(credentials) = Credentials::read(given.as_bytes()) else {
            return Err(refused("the header Authorization is neither Basic nor Bearer"));
        };
        // A client that disconnects still occupies its slot: otherwise a guess would cost only a
        // connection.
        let checking = Arc::clone(inner).check(credentials, digest, check_permit);
        if !tokio::spawn(checking).await.unwrap_or(false) {
            return Err(refused("unknown user, wrong password or wrong token"));
        }
        Ok(())
    }
}

impl Inner {
    /// Whether the credentials are right. Holds the slot until a wrong guess is paid for.
    async fn check(
        self: Arc<Self>,
        credentials: Credentials,
        digest: SaltedDigest,
        check_permit: OwnedSemaphorePermit,
    ) -> bool {
        let inner = Arc::clone(&self);
        let right = tokio::task::spawn_blocking(move || inner.known.check(&credentials)).await;
        let right = right.unwrap_or(false);
        if right {
            self.remember(digest);
        } else {
            // Without the name: users type passwords into the wrong field.
            tracing::warn!("a login with a wrong name, password or token was refused");
            tokio::time::sleep(WRONG_DELAY).await;
        }
        drop(check_permit);
        right
    }

    fn remember(&self, digest: SaltedDigest) {
        let mut accepted = self.accepted();
        if accepted.len() >= ACCEPTED_MAX {
            accepted.clear();
        }
        accepted.insert(digest);
    }

    fn accepted(&self) -> std::sync::MutexGuard<'_, HashSet<SaltedDigest>> {
        lock(&self.accepted)
    }
}

impl KnownLogins {
    /// Digests have a fixed length and reveal nothing without the salt, so the time of a comparison
    /// shows neither length nor content of a secret.
    fn digest_of(&self, text: &[u8]) -> SaltedDigest {
        Sha256::new().chain_update(self.salt).chain_update(text).finalize().into()
    }

    fn check(&self, credentials: &Credentials) -> bool {
        match credentials {
            Credentials::Token(token) => {
                let given = self.digest_of(token);
                let any = self
                    .tokens
                    .iter()
                    .fold(Choice::from(0), |any, token| any | token.ct_eq(&given));
                any.into()
            }
            Credentials::User { name, password } => {
                let name = self.digest_of(name);
                let user = self.users.iter().find(|(known, _)| known.ct_eq(&name).into());
                let plain = match user {
                    Some((_, Password::Hash(hash))) => return is_hash_of(hash, password),
                    Some((_, Password::Plain(known))) => Some(known),
                    None => None,
                };
                // If any user has a hash, unknown names take as long to check, so that the time of
                // an answer does not reveal which names exist.
                let hash = self.users.iter().find_map(|(_, known)| match known {
                    Password::Hash(hash) => Some(hash),
                    Password::Plain(_) => None,
                });
                hash.map(|hash| is_hash_of(hash, password));
                plain.is_some_and(|known| known.ct_eq(&self.digest_of(password)).into())
            }
        }
    }
}

fn is_hash_of(hash: &PasswordHash, password: &[u8]) -> bool {
    argon2::Argon2::default().verify_password(password, hash).is_ok()
}

enum Credentials {
    User { name: Vec<u8>, password: Vec<u8> },
    Token(Vec<u8>),
}

impl Credentials {
    fn read(header: &[u8]) -> Option<Credentials> {
        let space = header.iter().position(|byte| *byte == b' ')?;
        let (scheme, value) = (&header[..space], header[space..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Some(Credentials::Token(value.to_vec()));
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return None;
        }
        let mut name = STANDARD.decode(value).ok()?;
        let colon = name.iter().position(|byte| *byte == b':')?;
        let password = name.split_off(colon + 1);
        name.pop();
        Some(Credentials::User { name, password })
    }
}

fn refused(why: &str) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::password_hash::PasswordHasher;
    use axum::http::HeaderValue;
    use windlass_program::Secret;

    fn guard() -> Guard {
        let quick = argon2::Params::new(8, 1, 1, None).unwrap();
        let hasher =
            argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, quick);
        let hash = hasher.hash_password_with_salt(b"geheim", b"0123456789abcdef");
        let hash: argon2::password_hash::phc::PasswordHash = hash.unwrap();
        let users = vec![
            ("anna".to_owned(), Secret::new("pa:ss")),
            ("otto".to_owned(), Secret::new(hash.to_string())),
        ];
        Guard::new(&Access { users, tokens: vec![Secret::new("t0"), Secret::new("t1")] }).unwrap()
    }

    async fn status(guard: &Guard, authorization: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        guard.admit(&headers).await.err().map_or(200, |failure| failure.status.as_u16())
    }

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    #[tokio::test(start_paused = true)]
    async fn users_and_tokens_come_in_and_nobody_else() {
        let guard = guard();
        for right in [basic("anna", "pa:ss"), basic("otto", "geheim"), "bearer t1".to_owned()] {
            assert_eq!(status(&guard, Some(&right)).await, 200, "{right}");
            assert_eq!(status(&guard, Some(&right)).await, 200, "{right}");
        }
        let wrong = [
            basic("anna", "pass"),
            basic("anna", ""),
            basic("otto", "pa:ss"),
            basic("otto", "$argon2id$"),
            basic("egon", "geheim"),
            basic("", ""),
            "Basic !".to_owned(),
            format!("Basic {}", STANDARD.encode("anna")),
            "Bearer t2".to_owned(),
            "Bearer ".to_owned(),
            "Digest x".to_owned(),
            "t1".to_owned(),
        ];
        for wrong in wrong {
            assert_eq!(status(&guard, Some(&wrong)).await, 401, "{wrong}");
        }
        assert_eq!(status(&guard, None).await, 401);
    }

    #[tokio::test]
    async fn without_users_and_tokens_everybody_comes_in() {
        let open = Guard::new(&Access::default()).unwrap();
        assert_eq!(status(&open, None).await, 200);
        assert_eq!(status(&open, Some("Basic !")).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_wait_for_each_other_and_do_not_keep_out_who_is_known() {
        let guard = guard();
        let right = basic("anna", "pa:ss");
        assert_eq!(status(&guard, Some(&right)).await, 200);
        let guesses = CHECKS_MAX * 1000;
        let begun = tokio::time::Instant::now();
        let guessing = futures_util::future::join_all((0..guesses).map(|guess| {
            let guard = guard.clone();
            async move { status(&guard, Some(&format!("Bearer {guess}"))).await }
        }));
        let mut guessing = std::pin::pin!(guessing);
        assert!(futures_util::poll!(guessing.as_mut()).is_pending());
        assert_eq!(status(&guard, Some(&right)).await, 200);
        let answers = guessing.await;
        let looked_at = answers.iter().filter(|status| **status == 401).count();
        let turns = begun.elapsed().as_millis() / WRONG_DELAY.as_millis();
        assert!(looked_at <= CHECKS_MAX * (turns as usize + 1), "{looked_at} in {turns} turns");
        assert!(answers.iter().all(|status| matches!(status, 401 | 429)));
        assert!(answers.contains(&429));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_still_pays_for_a_wrong_guess() {
        let guard = guard();
        let free = |guard: &Guard| guard.0.as_ref().unwrap().checks.available_permits();
        for guess in 0..CHECKS_MAX {
            let wrong = format!("Bearer {guess}");
            let mut asking = Box::pin(status(&guard, Some(&wrong)));
            assert!(futures_util::poll!(asking.as_mut()).is_pending());
        }
        assert_eq!(free(&guard), 0);
        assert_eq!(status(&guard, Some("Bearer t1")).await, 200);
        assert!(free(&guard) > 0);
    }

    #[test]
    fn a_hash_that_is_none_is_told_at_once() {
        let users = vec![("anna".to_owned(), Secret::new("$argon2id$nonsense"))];
        let refused = Guard::new(&Access { users, tokens: Vec::new() }).err().unwrap();
        assert!(refused.contains("'anna'") && !refused.contains("nonsense"), "{refused}");
    }
}
