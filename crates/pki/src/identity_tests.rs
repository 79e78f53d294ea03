use proptest::prelude::*;

use super::*;

const POD: &str = "spiffe://valkey.local/ns/shop/cluster/orders/pod/orders-0-1";
const OPERATOR: &str = "spiffe://valkey.local/ns/valkey-system/operator";

fn parsed(text: &str) -> Result<SpiffeId, IdentityError> {
    text.parse()
}

fn domain() -> TrustDomain {
    "valkey.local".parse().unwrap()
}

#[test]
fn the_two_forms_are_read_and_written() {
    let pod = SpiffeId::pod(&domain(), "shop", "orders", "orders-0-1").unwrap();
    assert_eq!((pod.to_string().as_str(), parsed(POD)), (POD, Ok(pod)));
    let operator = SpiffeId::operator(&domain(), "valkey-system").unwrap();
    assert_eq!((operator.to_string().as_str(), parsed(OPERATOR)), (OPERATOR, Ok(operator)));
}

#[test]
fn near_misses_are_refused() {
    for near in [
        "",
        "spiffe://",
        "spiffe:///ns/shop/operator",
        "spiffe://valkey.local",
        "spiffe://valkey.local/ns/shop",
        "spiffe://valkey.local/ns/shop/operator/",
        "spiffe://valkey.local//ns/shop/operator",
        "spiffe://valkey.local/ns//operator",
        "spiffe://valkey.local/ns/shop/Operator",
        "spiffe://valkey.local/NS/shop/operator",
        "spiffe://valkey.local/ns/shop/operator/pod/x",
        "spiffe://valkey.local/ns/shop/operator?x=1",
        "spiffe://valkey.local/ns/shop/operator#x",
        "spiffe://valkey.local/ns/sh%6fp/operator",
        "spiffe://valkey.local/ns/../operator",
        "spiffe://valkey.local/ns/./operator",
        "spiffe://valkey.local/ns/sh op/operator",
        "spiffe://valkey.local/ns/shöp/operator",
        "spiffe://valkey.local/ns/shop/operator\n",
        " spiffe://valkey.local/ns/shop/operator",
        "spiffe://valkey.local:8443/ns/shop/operator",
        "spiffe://me@valkey.local/ns/shop/operator",
        "spiffe://Valkey.local/ns/shop/operator",
        "SPIFFE://valkey.local/ns/shop/operator",
        "https://valkey.local/ns/shop/operator",
        "spiffe://valkey.local/ns/shop/cluster/orders/pod/",
        "spiffe://valkey.local/ns/shop/cluster/orders/pod",
        "spiffe://valkey.local/ns/shop/cluster/orders",
        "spiffe://valkey.local/ns/shop/cluster//pod/orders-0-1",
        "spiffe://valkey.local/ns/shop/pod/orders-0-1/cluster/orders",
        "spiffe://valkey.local/ns/shop/cluster/orders/pod/orders-0-1/x",
    ] {
        assert!(parsed(near).is_err(), "{near:?} was taken for an identity");
    }
    let too_long = "a".repeat(LONGEST_NAME + 1);
    assert!(parsed(&format!("spiffe://valkey.local/ns/{too_long}/operator")).is_err());
}

#[test]
fn a_name_cannot_smuggle_in_a_path() {
    let sly = SpiffeId::pod(&domain(), "shop", "orders/pod/orders-0-0", "x");
    assert_eq!(sly, Err(IdentityError::Segment("orders/pod/orders-0-0".into())));
}

prop_compose! {
    fn segment()(text in "[A-Za-z0-9._-]{1,40}".prop_filter("relative", |text| text != "." && text != "..")) -> Segment {
        text.parse().unwrap()
    }
}

prop_compose! {
    fn trust_domain()(text in "[a-z0-9_-][a-z0-9._-]{0,40}") -> TrustDomain {
        text.parse().unwrap()
    }
}

fn identity() -> impl Strategy<Value = Identity> {
    prop_oneof![
        segment().prop_map(|namespace| Identity::Operator { namespace }),
        (segment(), segment(), segment()).prop_map(|(namespace, cluster, pod)| Identity::Pod {
            namespace,
            cluster,
            pod
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(trust_domain in trust_domain(), identity in identity()) {
        let id = SpiffeId { trust_domain, identity };
        prop_assert_eq!(parsed(&id.to_string()), Ok(id));
    }

    /// Whatever somebody inserts into an identity: either it is refused, or it is another identity with that very text.
    #[test]
    fn no_text_is_an_identity_but_its_own(at in 0..POD.len(), more in "[/?#@:%.a-zA-Z \\-]{1,3}") {
        let mut text = POD.to_owned();
        text.insert_str(at, &more);
        if let Ok(id) = parsed(&text) {
            prop_assert_eq!(id.to_string(), text);
        }
    }
}
