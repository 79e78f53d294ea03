//! What must not be in a file. The words looked for are written in two halves, or this file would find itself.

/// Somebody's home: such a path works on one machine only.
const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/Us", "ers/")];
const ROOTS_HOME: &str = concat!("/ro", "ot/");

/// Where packages come from is the business of the machine that builds, not of the repository.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("yarnpkg", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("deb.debian", ".org"),
];

/// How cargo names its default registry in every line of Cargo.lock, whatever it is replaced with: a name, not a host.
const CARGOS_NAME: &str = concat!("github.com/rust-lang/crates", ".io-index");

const MERGE_MARKERS: &[&str] = &[concat!("<<<<", "<<< "), concat!("||||", "||| "), concat!(">>>>", ">>> ")];

/// A file that can be read in one go.
const LONGEST_RUST_FILE: usize = 600;

/// One sentence for each thing that must not be in this file.
pub fn violations(file: &str, content: &str) -> Vec<String> {
    let in_lines = content
        .lines()
        .zip(1..)
        .filter_map(|(line, number)| Some(format!("{file}:{number}: {}", wrong_with_line(line)?)));
    in_lines.chain(too_long(file, content)).collect()
}

fn wrong_with_line(line: &str) -> Option<String> {
    if let Some(home) = HOMES.iter().find(|home| line.contains(*home)).or_else(|| of_root(line)) {
        return Some(format!("{home}… is a path of one machine: make it relative, or take it from the environment."));
    }
    let line = line.replace(CARGOS_NAME, "");
    if let Some(host) = REGISTRIES.iter().find(|host| line.contains(*host)) {
        return Some(format!("{host} is a package registry: leave the choice to the machine's configuration."));
    }
    let marker = MERGE_MARKERS.iter().any(|marker| line.starts_with(marker));
    marker.then(|| "a merge was left unfinished here.".into())
}

/// Root's home is a word of its own in many paths (`…/root/.cache`, `rootfs`): only a file or folder in it counts.
fn of_root(line: &str) -> Option<&'static &'static str> {
    let mut after = line.split(ROOTS_HOME).skip(1);
    after.any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic())).then_some(&ROOTS_HOME)
}

fn too_long(file: &str, content: &str) -> Option<String> {
    let lines = content.lines().count();
    let generated = content.lines().take(3).any(|line| line.contains("@generated"));
    let rust = std::path::Path::new(file).extension().is_some_and(|extension| extension == "rs");
    (rust && !generated && lines > LONGEST_RUST_FILE)
        .then(|| format!("{file}: {lines} lines are too many to read in one go: split it below {LONGEST_RUST_FILE}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_a_machine_and_of_a_merge_are_found_with_their_line() {
        let (home, mac, root) = (HOMES[0], HOMES[1], ROOTS_HOME);
        let (host, ours, theirs) = (REGISTRIES[0], MERGE_MARKERS[0], MERGE_MARKERS[2]);
        for bad in [
            format!("path = \"{home}ann/src\""),
            format!("{mac}ann/src"),
            format!("-I{root}src"),
            format!("{root}.cache and {root}src"),
            format!("https://static.{host}/x"),
            format!("\"{CARGOS_NAME}\" \"{host}\""),
            format!("{ours}HEAD"),
            format!("{theirs}branch"),
        ] {
            let found = violations("a/b.md", &format!("fine\n{bad}\nfine\n"));
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].starts_with("a/b.md:2: "), "{found:?}");
        }
    }

    #[test]
    fn what_only_looks_alike_passes() {
        let (root, ours) = (ROOTS_HOME, MERGE_MARKERS[0]);
        for good in [
            format!("source = \"registry+https://{CARGOS_NAME}\""),
            format!("{root}.cache"),
            "mount /rootfs/bin".into(),
            "at home, /homes/ and /user/".into(),
            "Heading\n=======".into(),
            format!("    {ours}HEAD in the middle of a line"),
        ] {
            assert_eq!(violations("a/b.md", &good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn a_long_file_is_named_if_somebody_has_to_read_it() {
        let long = "//\n".repeat(LONGEST_RUST_FILE + 1);
        assert_eq!(violations("a.rs", &long).len(), 1);
        for (file, content) in [
            ("a.rs", "//\n".repeat(LONGEST_RUST_FILE)),
            ("a.lock", long.clone()),
            ("a.rs", format!("// This file is @generated\n{long}")),
        ] {
            assert_eq!(violations(file, &content), Vec::<String>::new(), "{file}");
        }
    }
}
