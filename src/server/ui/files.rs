//! The files of the page. `make web` writes them, and the table of them, into `web/dist`.

/// A file of the page, plain and compressed.
#[derive(Debug)]
pub struct File {
    /// With a hash of what is in it: a file of this name never changes.
    pub name: &'static str,
    pub kind: &'static str,
    pub plain: &'static [u8],
    /// The content, compressed by gzip.
    pub gzip: &'static [u8],
}

/// All but the page itself.
static FILES: &[File] = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/dist/files.in"));

/// The page, with [`BASE`] and [`SETTINGS`] in it once each.
pub const INDEX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/dist/index.html"));

/// Where the page says from where its links begin.
pub const BASE: &str = "{{base}}";

/// Where it has what [`Settings`](super::settings::Settings) say.
pub const SETTINGS: &str = "{{settings}}";

/// The file of a name.
pub fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_files_that_are_there() {
        assert_eq!(INDEX.matches(BASE).count(), 1);
        assert_eq!(INDEX.matches(SETTINGS).count(), 1);
        let named: Vec<&str> =
            INDEX.split("\"f/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() >= 2, "{named:?}");
        assert!(named.iter().all(|name| find(name).is_some()), "{named:?}");
    }
}
