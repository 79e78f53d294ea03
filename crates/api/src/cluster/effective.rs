//! What a spec comes to: the user's word where there is one, else the built-in default.

use super::{
    Aof, AppendFsync, Auth, Persistence, Rdb, Replication, Retain, SecretKey, Upgrade, ValkeyClusterSpec, ValkeyImage,
};

pub const VALKEY_IMAGE: &str = "docker.io/valkey/valkey";
pub const VALKEY_TAG: &str = "9.1.2";
const SAVE: &str = "3600 1 300 100 60 10000";

impl ValkeyClusterSpec {
    pub fn master_count(&self) -> i32 {
        self.master_count.unwrap_or(3)
    }

    pub fn replicas_per_master(&self) -> i32 {
        self.replicas_per_master.unwrap_or(1)
    }

    pub fn allows_unsafe_topology(&self) -> bool {
        self.allow_unsafe_topology.unwrap_or(false)
    }

    pub fn is_paused(&self) -> bool {
        self.paused.unwrap_or(false)
    }

    pub fn tls_enabled(&self) -> bool {
        self.tls.as_ref().and_then(|tls| tls.enabled).unwrap_or(true)
    }

    pub fn read_service_enabled(&self) -> bool {
        self.read_service.as_ref().and_then(|service| service.enabled).unwrap_or(false)
    }

    pub fn max_memory(&self) -> &str {
        self.max_memory.as_deref().unwrap_or("auto")
    }

    pub fn upgrade(&self) -> Upgrade {
        self.upgrade.clone().unwrap_or_default()
    }

    pub fn valkey_image(&self) -> ValkeyImage {
        self.valkey_image.clone().unwrap_or_default()
    }

    pub fn auth(&self) -> Auth {
        self.auth.clone().unwrap_or_default()
    }

    pub fn persistence(&self) -> Persistence {
        self.persistence.clone().unwrap_or_default()
    }

    pub fn replication(&self) -> Replication {
        self.replication.clone().unwrap_or_default()
    }
}

impl ValkeyImage {
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(VALKEY_IMAGE)
    }

    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(VALKEY_TAG)
    }
}

impl Upgrade {
    pub fn validation_timeout_seconds(&self) -> i32 {
        self.validation_timeout_seconds.unwrap_or(300)
    }

    pub fn rolls_back(&self) -> bool {
        self.auto_rollback.unwrap_or(true)
    }
}

impl Auth {
    pub fn enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

impl SecretKey {
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or("password")
    }
}

impl Persistence {
    pub fn enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    pub fn size(&self) -> &str {
        self.size.as_deref().unwrap_or("1Gi")
    }

    pub fn retain(&self) -> Retain {
        self.retain.unwrap_or_default()
    }

    pub fn rdb(&self) -> Rdb {
        self.rdb.clone().unwrap_or_default()
    }

    pub fn aof(&self) -> Aof {
        self.aof.clone().unwrap_or_default()
    }
}

impl Rdb {
    pub fn enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    pub fn save(&self) -> &str {
        self.save.as_deref().unwrap_or(SAVE)
    }
}

impl Aof {
    pub fn enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    pub fn appendfsync(&self) -> AppendFsync {
        self.appendfsync.unwrap_or_default()
    }
}

impl Replication {
    pub fn diskless_sync(&self) -> bool {
        self.diskless_sync.unwrap_or(true)
    }

    pub fn min_replicas_to_write(&self) -> i32 {
        self.min_replicas_to_write.unwrap_or(0)
    }

    pub fn min_replicas_max_lag(&self) -> i32 {
        self.min_replicas_max_lag.unwrap_or(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_is_a_secure_three_by_one_cluster_that_keeps_its_data() {
        let spec: ValkeyClusterSpec = serde_json::from_str("{}").unwrap();
        assert_eq!((spec.master_count(), spec.replicas_per_master()), (3, 1));
        assert!(spec.tls_enabled() && spec.auth().enabled());
        assert!(
            spec.persistence().enabled() && spec.persistence().rdb().enabled() && spec.persistence().aof().enabled()
        );
        assert!(!spec.allows_unsafe_topology() && !spec.is_paused() && !spec.read_service_enabled());
    }

    #[test]
    fn a_spec_is_written_back_as_the_user_wrote_it() {
        let text = r#"{"masterCount":5,"persistence":{"aof":{"appendfsync":"always"}},"tls":{}}"#;
        let spec: ValkeyClusterSpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), serde_json::to_value(&spec).unwrap());
    }
}
