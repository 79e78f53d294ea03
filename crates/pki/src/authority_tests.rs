use rcgen::{DnValue, PKCS_ED25519};

use super::*;
use crate::verification_tests::{Brought, intermediate, now, request, root};
use crate::{Intermediate, TWIN_ENTRY};

#[test]
fn dates_are_backdated_and_end_when_asked() {
    let root = root();
    let leaf = intermediate(&root, "orders.shop tls").authority().issue(&request(), now()).unwrap();
    assert_eq!(leaf.facts.not_before.to_string(), "2026-03-01T11:55:00Z");
    assert_eq!(leaf.facts.issued_at().to_string(), "2026-03-01T12:00:00Z");
    assert_eq!(leaf.facts.not_after.to_string(), "2026-05-30T12:00:00Z");
    assert_eq!(root.facts().not_after.to_string(), "2036-02-27T12:00:00Z");
}

#[test]
fn the_facts_are_those_of_the_leaf_not_of_what_follows_it() {
    let leaf = intermediate(&root(), "orders.shop tls").authority().issue(&request(), now()).unwrap();
    let read = crate::facts(leaf.chain_pem.as_bytes()).unwrap();
    assert_eq!(read, leaf.facts);
    assert_eq!((read.subject.as_str(), read.issuer.as_str()), ("CN=orders-0-0", "CN=orders.shop tls"));
    assert_eq!(read.thumbprint.as_str().len(), 64);
}

#[test]
fn every_certificate_has_its_own_serial_except_twins() {
    let orders = intermediate(&root(), "orders.shop tls");
    let serial = |der| facts_of(der).unwrap().serial;
    assert_eq!(serial(orders.twin()), serial(orders.authority().certificate()));
    let issue = || orders.authority().issue(&request(), now()).unwrap().facts.serial;
    assert_ne!(issue(), issue());
}

#[test]
fn a_leaf_does_not_outlive_its_authority_and_an_ended_one_issues_nothing() {
    let root = Authority::root("root", "30d".parse().unwrap(), now()).unwrap();
    let orders = intermediate(&root, "orders.shop tls");
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    assert_eq!(leaf.facts.not_after, root.facts().not_after);
    let error = orders.authority().issue(&request(), root.facts().not_after).unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
}

#[test]
fn a_root_and_an_intermediate_are_the_same_after_they_were_stored() {
    let root = root();
    let again = Authority::load(root.certificate_pem().as_bytes(), root.key()).unwrap();
    assert_eq!(again.certificate(), root.certificate());
    assert!(again.chain().is_empty(), "a root never follows a leaf");

    let orders = intermediate(&again, "orders.shop tls");
    let loaded = Intermediate::load(&orders.certificates(), orders.key()).unwrap();
    assert_eq!(loaded.certificates(), orders.certificates());
    assert_eq!(loaded.authority().chain(), [orders.authority().certificate().clone()]);
}

#[test]
fn the_twin_has_the_intermediates_name_key_and_dates_and_is_signed_by_itself() {
    let orders = intermediate(&root(), "orders.shop tls");
    let (own, twin) = (parse(orders.authority().certificate()).unwrap(), parse(orders.twin()).unwrap());
    assert_eq!(own.subject().as_raw(), twin.subject().as_raw());
    assert_eq!(own.public_key(), twin.public_key());
    assert_eq!(own.validity(), twin.validity());
    let key_id = |certificate: &X509Certificate<'_>| {
        let oid = x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER;
        certificate.get_extension_unique(&oid).unwrap().unwrap().value.to_vec()
    };
    assert_eq!(key_id(&own), key_id(&twin));
    assert!(is_self_signed(&twin) && !is_self_signed(&own));
}

#[test]
fn a_foreign_twin_and_a_missing_one_are_refused() {
    let root = root();
    let (orders, other) = (intermediate(&root, "orders.shop tls"), intermediate(&root, "orders.shop tls"));
    let mut mixed = orders.certificates();
    mixed.insert(TWIN_ENTRY.into(), other.twin_pem().into_bytes());
    assert!(matches!(Intermediate::load(&mixed, orders.key()), Err(Error::Twin { .. })));
    mixed.remove(TWIN_ENTRY);
    assert!(matches!(Intermediate::load(&mixed, orders.key()), Err(Error::Missing("twin.crt"))));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let error = Authority::load(root().certificate_pem().as_bytes(), root().key()).unwrap_err();
    assert!(matches!(error, Error::KeyMismatch { .. }), "{error}");
    assert_eq!(error.category(), "KeyUnusable");
}

#[test]
fn what_cannot_be_read_says_what_to_store_instead() {
    let root = root();
    let message = |certificate: &str, key: &str| {
        Authority::load(certificate.as_bytes(), &key.to_owned().into()).unwrap_err().to_string()
    };
    let key = root.key().expose_secret();
    assert!(message("", key).contains("BEGIN CERTIFICATE"));
    assert!(message("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", key).contains("X.509"));
    assert!(message(&root.certificate_pem(), "").contains("openssl pkcs8"));
    let old_form = key.replace("PRIVATE KEY", "EC PRIVATE KEY").replace("MI", "AA");
    assert!(message(&root.certificate_pem(), &old_form).contains("openssl pkcs8"));
}

#[test]
fn no_key_is_ever_printed() {
    let root = root();
    let orders = intermediate(&root, "orders.shop tls");
    let leaf = orders.authority().issue(&request(), now()).unwrap();
    let printed = format!("{root:?} {orders:?} {leaf:?}");
    assert!(!printed.contains("PRIVATE KEY"));
}

#[test]
fn a_brought_ca_with_another_kind_of_key_is_taken() {
    let mut ed25519 = Brought::new("Corporate");
    ed25519.key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    for brought in [Brought::new("Corporate"), ed25519] {
        let root = brought.signed_by(None).load().unwrap();
        let leaf = intermediate(&root, "orders.shop tls").authority().issue(&request(), now());
        assert!(leaf.is_ok(), "{leaf:?}");
    }
}

#[test]
fn a_brought_certificate_that_is_no_ca_or_may_not_sign_is_refused() {
    let mut plain = Brought::new("plain");
    plain.params.is_ca = IsCa::ExplicitNoCa;
    let mut other_use = Brought::new("other use");
    other_use.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for brought in [plain, other_use] {
        let error = brought.signed_by(None).load().unwrap_err();
        assert!(matches!(error, Error::NotAnAuthority { .. }), "{error}");
    }
}

#[test]
fn a_brought_ca_that_may_not_sign_authorities_is_refused_before_anything_is_made() {
    let mut narrow = Brought::new("narrow");
    narrow.params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let narrow = narrow.signed_by(None).load().unwrap();
    let error = narrow.intermediate("orders.shop tls", Validity::INTERMEDIATE, now()).unwrap_err();
    assert!(matches!(error, Error::MayNotSignAuthorities { .. }), "{error}");
}

#[test]
fn a_subject_in_another_encoding_is_repeated_byte_for_byte() {
    let mut printable = Brought::new("x");
    let name = DnValue::PrintableString("Corporate".try_into().unwrap());
    printable.params.distinguished_name.push(DnType::OrganizationName, name);
    let root = printable.signed_by(None).load().unwrap();
    assert!(root.intermediate("orders.shop tls", Validity::INTERMEDIATE, now()).is_ok());
}

#[test]
fn long_names_are_shortened_and_stay_apart() {
    let (one, two) = (format!("{}1", "a".repeat(300)), format!("{}2", "a".repeat(300)));
    assert_ne!(shortened(&one), shortened(&two));
    assert_eq!(shortened(&one).chars().count(), LONGEST_COMMON_NAME);
    assert_eq!(shortened(&"ö".repeat(64)), "ö".repeat(64));
}

#[test]
fn a_name_that_is_none_is_refused() {
    let orders = intermediate(&root(), "orders.shop tls");
    for name in ["", "a b", "ö.shop.svc", "a\n"] {
        let request = LeafRequest { dns_names: vec![name.into()], ..request() };
        assert_eq!(orders.authority().issue(&request, now()).unwrap_err(), Error::Name(name.into()));
    }
}
