//! Whom a client certificate names.
//!
//! `webpki`, which rustls uses anyway, parses the certificate; only the subject's attribute list is read here.

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// The object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name of a certificate, or else its first DNS name. Names with control characters don't count.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    common_name(certificate.subject())
        .or_else(|| certificate.valid_dns_names().next())
        .filter(|name| !name.is_empty() && !name.chars().any(char::is_control))
        .map(Box::from)
}

/// Finds the last common name, which is the most specific one, in the contents of an X.501 name.
fn common_name(mut names: &[u8]) -> Option<&str> {
    let mut found = None;
    while let Some((set, rest)) = element(names, SET) {
        names = rest;
        let mut attributes = set;
        while let Some((attribute, rest)) = element(attributes, SEQUENCE) {
            attributes = rest;
            found = common_name_value(attribute).or(found);
        }
    }
    found
}

fn common_name_value(attribute: &[u8]) -> Option<&str> {
    let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
    if kind != COMMON_NAME {
        return None;
    }
    let text = [UTF8_STRING, PRINTABLE_STRING, IA5_STRING].iter().find_map(|tag| element(value, *tag))?.0;
    std::str::from_utf8(text).ok()
}

/// Splits off one DER element with this tag: its contents, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = bytes.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(low, rest)| (usize::from(*low), rest))?,
        0x82 => rest.split_first_chunk().map(|(two, rest)| (usize::from(u16::from_be_bytes(*two)), rest))?,
        // A name of 64 kB or more is nobody's name.
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn named(common: Option<&str>, dns: &[&str]) -> Option<Box<str>> {
        let mut params =
            CertificateParams::new(dns.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.distinguished_name.push(DnType::LocalityName, "Elsewhere");
        name(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[test]
    fn the_common_name_comes_first() {
        assert_eq!(named(Some("pump-7"), &["other.example"]).as_deref(), Some("pump-7"));
        assert_eq!(named(Some("Pumpe Süd"), &[]).as_deref(), Some("Pumpe Süd"));
        let long = "x".repeat(300);
        assert_eq!(named(Some(&long), &[]).as_deref(), Some(long.as_str()));
    }

    #[test]
    fn a_dns_name_stands_in() {
        assert_eq!(named(None, &["pump-7.example"]).as_deref(), Some("pump-7.example"));
        assert_eq!(named(None, &[]), None);
    }

    #[test]
    fn control_characters_are_refused() {
        assert_eq!(named(Some("pump\u{0}7"), &[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = common_name(&bytes);
            let _ = name(&CertificateDer::from(bytes));
        }
    }
}
