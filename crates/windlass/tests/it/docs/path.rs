//! The maps of the code name files and folders that exist.

use std::fs;
use std::path::Path;

#[test]
fn every_path_on_the_maps_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for page in ["ARCHITECTURE.md", "docs/paths.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        // Code is between backticks; a route begins with a slash.
        let code = text.split('`').skip(1).step_by(2);
        let is_path = |text: &&str| {
            let names_folder = text.contains('/') && !text.starts_with('/');
            (names_folder || text.ends_with(".rs")) && !text.contains(char::is_whitespace)
        };
        let paths: Vec<&str> = code.filter(is_path).collect();
        assert!(paths.len() > 10, "{page}: {paths:?}");
        for path in paths.into_iter().filter(|path| *path != "crates/") {
            assert!(root.join("crates").join(path).exists(), "{page}: there is no {path}");
        }
    }
}
