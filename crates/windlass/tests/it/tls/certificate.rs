//! Certificates made for a test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

/// Signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(super) struct Issued {
    pub(super) cert: String,
    pub(super) key: String,
    pub(super) der: Vec<u8>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    /// One for this machine.
    pub(super) fn issue(&self) -> Issued {
        self.issue_with(|_| ())
    }

    pub(super) fn issue_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Issued { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() }
    }
}
