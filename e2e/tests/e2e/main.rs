//! All end-to-end tests, in one program: tests that break nodes must be able to keep the others away.
//!
//! `cargo test -p e2e --test e2e -- --test-threads=2`, on the cluster that `KUBECONFIG` names.

mod addons;
mod bench;
mod crashes;
mod drains;
mod features;
mod formation;
mod helper;
mod limits;
mod local_operator;
mod losses;
mod nodes;
mod rolls;
mod scaling;
mod security;
mod settings;
mod storm;
mod sweeps;
mod tls;
mod upgrades;
mod volumes;
mod witness;
