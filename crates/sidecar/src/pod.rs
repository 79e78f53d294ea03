//! Who we are.

use std::net::IpAddr;

use valkey_model::{InvalidMember, Member, ShardIndex};

#[derive(Clone, Debug)]
pub struct Pod {
    pub namespace: String,
    pub cluster: String,
    pub name: String,
    pub ip: IpAddr,
    pub member: Member,
}

#[derive(Debug, thiserror::Error)]
pub enum PodError {
    #[error(transparent)]
    Name(#[from] InvalidMember),
    #[error("pod {pod} is not of shard {shard}: give --shard as in the pod's name")]
    Shard { pod: String, shard: ShardIndex },
}

impl Pod {
    pub fn new(
        namespace: String,
        cluster: String,
        name: String,
        ip: IpAddr,
        shard: ShardIndex,
    ) -> Result<Self, PodError> {
        let member = Member::of_pod(&cluster, &name)?;
        if member.shard != shard {
            return Err(PodError::Shard { pod: name, shard });
        }
        Ok(Self { namespace, cluster, name, ip, member })
    }

    /// The name that clients and certificates know it by.
    pub fn host(&self) -> String {
        let Self { namespace, cluster, name, .. } = self;
        format!("{name}.{cluster}-nodes.{namespace}.svc")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn pod() -> Pod {
        let words = ["shop", "orders", "orders-2-1"].map(String::from);
        let [namespace, cluster, name] = words;
        Pod::new(namespace, cluster, name, [10, 0, 0, 7].into(), ShardIndex(2)).unwrap()
    }

    #[test]
    fn a_pod_knows_its_place_from_its_name() {
        assert_eq!(pod().member, Member::new(2, 1));
        assert_eq!(pod().host(), "orders-2-1.orders-nodes.shop.svc");
        let Pod { namespace, cluster, name, ip, .. } = pod();
        let error = Pod::new(namespace, cluster, name, ip, ShardIndex(1)).unwrap_err();
        assert!(error.to_string().contains("--shard"), "{error}");
    }
}
