use valkey_testkit::process::{Program, expect_good_manners};

/// An API server that does not answer, which is no reason to end.
const NOBODY: &str = "
apiVersion: v1
kind: Config
current-context: nobody
clusters: [{name: nobody, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: nobody, context: {cluster: nobody, user: nobody}}]
";

#[test]
fn the_program_has_the_manners_of_a_process_in_a_pod() -> anyhow::Result<()> {
    let kubeconfig = tempfile::NamedTempFile::new()?;
    std::fs::write(kubeconfig.path(), NOBODY)?;
    expect_good_manners(Program {
        path: env!("CARGO_BIN_EXE_valkey-operator"),
        version: env!("CARGO_PKG_VERSION"),
        arguments: &["--sidecar-image", "localhost/valkey-sidecar:test"],
        environment: &[("KUBECONFIG", &kubeconfig.path().display().to_string())],
    })
}
