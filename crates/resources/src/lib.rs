//! From a user's cluster to the objects that make it run.
//!
//! [`check`] turns a `ValkeyCluster` into a [`CheckedCluster`] or says all that is wrong with it; [`Children::build`] turns
//! that into objects. Everything here is a plain function of what it is given: no client, no clock.

mod amount;
mod check;
mod checked;
mod children;
mod hash;
mod owned;
mod parameters;
mod relabel;
mod resize;
mod secrets;
mod series;
mod spec_error;
#[cfg(test)]
mod test_support;
mod users;
mod valkey_conf;
mod volume;

pub use amount::Bytes;
pub use check::{Presence, Reference, References, check};
pub use checked::{Access, AppendOnly, CheckedCluster, Encryption, Image, Pods, ReadAccess, Replicating, Storage};
pub use children::{
    BuildError, Children, DATA_VOLUME, Owner, SIDECAR_CONTAINER, VALKEY_CONF, VALKEY_CONTAINER, Wiring, child_meta,
    object, template_mark,
};
pub use relabel::relabel;
pub use resize::{Fitting, fitting};
pub use secrets::{
    PodCertificate, Trust, USERS_ADMIN_PASSWORD, USERS_FILE, USERS_REPLICATOR_PASSWORD, connection_secret,
    shard_certs_secret, users_secret,
};
pub use series::Series;
pub use spec_error::{SpecError, SpecErrors, SpecWarning};
pub use users::{ADMIN, APP, DEFAULT, Passwords, REPLICATOR, users_acl};
pub use valkey_conf::{carried_over, live_settings, valkey_conf, with_setting};
pub use volume::{Room, belonging, larger, room};
