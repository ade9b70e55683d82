//! The TLS files of a client: the authorities that it trusts, and its own certificate. Each refusal
//! is one sentence that names the file.

use std::fs;
use std::path::Path;

use reqwest::Certificate;

/// The authorities in a PEM file, at least one.
pub fn authorities(file: &Path) -> Result<Vec<Certificate>, String> {
    let unusable =
        |error: &dyn std::fmt::Display| format!("the certificates in {}: {error}", file.display());
    let pem = fs::read(file).map_err(|error| unusable(&error))?;
    let all = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
    if all.is_empty() {
        return Err(unusable(&"there are none"));
    }
    Ok(all)
}

/// The certificate of a client and its key, as one PEM text. Both may be in one file.
pub fn identity(cert: &Path, key: Option<&Path>) -> Result<Vec<u8>, String> {
    let read = |file: &Path| {
        fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
    };
    let key = key.unwrap_or(cert);
    let mut pem = read(cert)?;
    if !contains(&pem, b"-----BEGIN CERTIFICATE-----") {
        return Err(format!("there is no certificate in {}", cert.display()));
    }
    let of_key = if key == cert { pem.clone() } else { read(key)? };
    if contains(&of_key, b"ENCRYPTED") {
        return Err(format!("the key in {} is encrypted with a password", key.display()));
    }
    if !contains(&of_key, b"PRIVATE KEY-----") {
        return Err(format!("there is no private key in {}", key.display()));
    }
    if key != cert {
        pem.push(b'\n');
        pem.extend(of_key);
    }
    Ok(pem)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERT: &str = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nQQ==\n-----END PRIVATE KEY-----\n";
    const LOCKED: &str =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nQQ==\n-----END ENCRYPTED PRIVATE KEY-----\n";

    #[test]
    fn an_identity_is_a_certificate_and_its_key_in_one_file_or_two() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (cert, key) = (file("cert", CERT), file("key", KEY));
        let both = file("both", &format!("{CERT}{KEY}"));
        let text = String::from_utf8(identity(&cert, Some(&key)).unwrap()).unwrap();
        assert!(text.contains(CERT) && text.contains(KEY));
        assert!(identity(&both, None).is_ok());
        let missing = dir.path().join("missing");
        for (cert, key, told) in [
            (&missing, Some(&key), "cannot read"),
            (&key, Some(&key), "no certificate in"),
            (&cert, None, "no private key in"),
            (&cert, Some(&missing), "cannot read"),
            (&cert, Some(&file("locked", LOCKED)), "encrypted"),
        ] {
            let refused = identity(cert, key.map(|key| key.as_path())).unwrap_err();
            let named = [Some(cert), key].into_iter().flatten();
            let is_named = named.clone().any(|file| refused.contains(file.to_str().unwrap()));
            assert!(refused.contains(told) && is_named, "{refused}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        for text in [None, Some(""), Some(KEY)] {
            text.iter().for_each(|text| fs::write(&file, text).unwrap());
            let refused = authorities(&file).unwrap_err();
            assert!(refused.contains("ca.pem"), "{refused}");
        }
    }
}
