//! All end-to-end tests, in one program: tests that break nodes must be able to keep the others away.
//!
//! `cargo test -p e2e --test e2e -- --test-threads=2`, on the cluster that `KUBECONFIG` names.

mod addons;
mod bench;
mod crashes;
mod features;
mod formation;
mod helper;
mod losses;
mod nodes;
mod security;
mod tls;
mod volumes;
mod witness;
