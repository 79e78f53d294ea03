use valkey_testkit::process::{Program, expect_good_manners};

#[test]
fn the_program_has_the_manners_of_a_process_in_a_pod() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path().display();
    let [run_dir, data_dir, mounts] = ["run-dir", "data-dir", "mounts"].map(|flag| format!("--{flag}={folder}"));
    let arguments = [
        "run",
        "--cluster=orders",
        "--shard=0",
        "--pod-name=orders-0-0",
        "--pod-namespace=shop",
        "--pod-ip=127.0.0.1",
        "--operator-namespace=system",
        "--trust-domain=test",
        "--grpc-addr=127.0.0.1:0",
        &run_dir,
        &data_dir,
        &mounts,
    ];
    let (path, version) = (env!("CARGO_BIN_EXE_valkey-sidecar"), env!("CARGO_PKG_VERSION"));
    expect_good_manners(Program { path, version, arguments: &arguments, environment: &[] })
}
