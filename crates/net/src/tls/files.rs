//! The files of a server's certificate. Each refusal is one sentence that names the setting, the
//! file and the reason.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, RootCertStore, ServerConfig};

use super::Loaded;
use super::validity::{self, Validity};

/// Largest file that is read; certificate chains in use are far smaller.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The right of everybody to read a file.
const EVERYBODY_READS: u32 = 0o004;

const CERT: &str = "tls.cert";
const KEY: &str = "tls.key";
const CLIENT_CA: &str = "tls.client_ca";

/// Where a server's certificate is. All files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, then those that lead to a known one, if any.
    pub cert: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
    /// If it is set, clients need a certificate that one of these has signed.
    pub client_ca: Option<PathBuf>,
}

impl Files {
    /// Reads and checks everything. `now` is in seconds since 1970.
    pub(super) fn load(&self, protocols: &[&'static [u8]], now: i64) -> Result<Loaded, String> {
        let chain = certificates(CERT, &self.cert)?;
        let validity = self.check_time(&chain[0], now)?;
        let certificate = chain[0].clone();
        let key = private_key(&self.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = match &self.client_ca {
            Some(file) => client_verifier(file, &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("tls: {error}"))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|error| self.refuse_pair(error))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Loaded { config: Arc::new(config), certificate, expires_at: validity.not_after })
    }

    fn check_time(&self, certificate: &CertificateDer<'_>, now: i64) -> Result<Validity, String> {
        let cert = self.cert.display();
        let damaged = || format!("{CERT}: the first certificate in {cert} is damaged");
        let validity = Validity::of(certificate).ok_or_else(damaged)?;
        if now < validity.not_before {
            let from = validity::text_of(validity.not_before);
            return Err(format!(
                "{CERT}: the certificate in {cert} is not valid before {from}; check the clock of \
                 this machine, or use another certificate"
            ));
        }
        if now > validity.not_after {
            let until = validity::text_of(validity.not_after);
            return Err(format!("{CERT}: the certificate in {cert} expired at {until}"));
        }
        Ok(validity)
    }

    fn refuse_pair(&self, error: Error) -> String {
        let (cert, key) = (self.cert.display(), self.key.display());
        match error {
            Error::InconsistentKeys(_) => format!(
                "{KEY}: the key in {key} does not belong to the first certificate in {cert}"
            ),
            Error::InvalidCertificate(_) => {
                format!("{CERT}: the first certificate in {cert} is damaged ({error})")
            }
            error => format!("{KEY}: the key in {key} cannot be used: {error}"),
        }
    }
}

fn client_verifier(
    file: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let cannot = |error: &dyn std::fmt::Display| {
        format!("{CLIENT_CA}: the certificates in {} cannot be used: {error}", file.display())
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CLIENT_CA, file)? {
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| cannot(&error))
}

/// All certificates in a file, at least one.
fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(setting, file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| broken_pem(setting, file, &error))?;
    if all.is_empty() {
        let file = file.display();
        return Err(format!(
            "{setting}: there is no certificate in {file}; PEM has one after -----BEGIN \
             CERTIFICATE-----"
        ));
    }
    Ok(all)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(KEY, file)?;
    check_access(file)?;
    let shown = file.display();
    if text.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED) {
        return Err(format!(
            "{KEY}: the key in {shown} is encrypted with a password; store it without one, for \
             example by `openssl pkey -in {shown} -out NEW`"
        ));
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(format!(
            "{KEY}: there is no private key in {shown}; PEM has one after -----BEGIN PRIVATE \
             KEY-----"
        )),
        Err(error) => Err(broken_pem(KEY, file, &error)),
    }
}

/// In both forms of encrypted keys.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A group may read a key, since that is how packages share keys with services. A key that every
/// user of the machine can read protects nothing, and a warning would be read after the theft.
fn check_access(file: &Path) -> Result<(), String> {
    let shown = file.display();
    let metadata = fs::metadata(file).map_err(|error| cannot_read(KEY, file, &error))?;
    if metadata.permissions().mode() & EVERYBODY_READS != 0 {
        return Err(format!(
            "{KEY}: every user of this machine can read {shown}; close it (chmod o= {shown})"
        ));
    }
    Ok(())
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let opened = File::open(file).map_err(|error| cannot_read(setting, file, &error))?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| cannot_read(setting, file, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let file = file.display();
        return Err(format!("{setting}: {file} has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

fn cannot_read(setting: &str, file: &Path, error: &std::io::Error) -> String {
    format!("{setting}: cannot read {}: {error}", file.display())
}

/// The parser shows lines as numbers, and of a key none should be shown.
fn broken_pem(setting: &str, file: &Path, error: &pem::Error) -> String {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "its last section does not end",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "a section is damaged",
    };
    format!("{setting}: {} is not valid PEM: {why}", file.display())
}
