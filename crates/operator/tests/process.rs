#[test]
fn the_program_has_the_manners_of_a_process_in_a_pod() -> anyhow::Result<()> {
    valkey_testkit::process::expect_good_manners(env!("CARGO_BIN_EXE_valkey-operator"), env!("CARGO_PKG_VERSION"))
}
