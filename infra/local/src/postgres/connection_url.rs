//! Connection addresses that tokio-postgres, libpq (so psql) and other drivers read alike.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The address of a database behind a Unix socket in `directory`: the directory is the host, percent-encoded.
pub(super) fn on_socket(directory: &Path, port: u16, database: &str, user: &str) -> String {
    let (user, database) = (encoded(user.as_bytes()), encoded(database.as_bytes()));
    format!("postgresql://{user}@{}:{port}/{database}", encoded(directory.as_os_str().as_bytes()))
}

/// The address of a database behind a TCP port of this machine, which speaks without TLS.
pub(super) fn on_port(port: u16, database: &str, user: &str) -> String {
    format!(
        "postgresql://{}@127.0.0.1:{port}/{}?sslmode=disable",
        encoded(user.as_bytes()),
        encoded(database.as_bytes())
    )
}

/// The given server's address with another database and, if `role` is given, another role.
///
/// The role is assumed after logging in as before, since the tests' roles have no password on a server that asks
/// for one. `RESET ROLE` would undo it: enough to test privileges, not to confine a stranger.
pub(super) fn on_given_server(server: &str, database: &str, role: Option<&str>) -> String {
    let (address, query) = server.split_once('?').unwrap_or((server, ""));
    let authority = match address.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()),
        None => address.to_owned(),
    };
    let role_option = role.map(|role| encoded(format!("-c role={role}").as_bytes()));
    let mut options: Vec<String> = Vec::new();
    let mut parameters: Vec<String> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("dbname", _)) => {}
            Some(("options", value)) => options.push(value.to_owned()),
            Some((_, _)) | None => parameters.push(parameter.to_owned()),
        }
    }
    options.extend(role_option);
    if !options.is_empty() {
        parameters.push(format!("options={}", options.join("%20")));
    }
    let separator = if parameters.is_empty() { "" } else { "?" };
    format!("{authority}/{}{separator}{}", encoded(database.as_bytes()), parameters.join("&"))
}

fn encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use tokio_postgres::Config;
    use tokio_postgres::config::Host;

    use super::*;

    #[test]
    fn a_socket_address_is_read_back_whole() {
        let url = on_socket(Path::new("/tmp/a b%c"), 5432, "da/ta", "me@here");
        assert_eq!(url, "postgresql://me%40here@%2Ftmp%2Fa%20b%25c:5432/da%2Fta");
        let config = Config::from_str(&url).expect("readable");
        assert_eq!(config.get_hosts(), [Host::Unix("/tmp/a b%c".into())]);
        assert_eq!((config.get_dbname(), config.get_user()), (Some("da/ta"), Some("me@here")));
    }

    #[test]
    fn a_given_server_keeps_its_login_and_its_parameters() {
        let server = "postgres://app:se%2Fcret@db:6432/live?sslmode=require&dbname=live&options=-c%20work_mem%3D8MB";
        assert_eq!(
            on_given_server(server, "ours", None),
            "postgres://app:se%2Fcret@db:6432/ours?sslmode=require&options=-c%20work_mem%3D8MB"
        );
        let url = on_given_server(server, "ours", Some("scan"));
        let config = Config::from_str(&url).expect("readable");
        assert_eq!(config.get_options(), Some("-c work_mem=8MB -c role=scan"));
        assert_eq!((config.get_dbname(), config.get_user()), (Some("ours"), Some("app")));
        assert_eq!(on_given_server("postgresql://db", "ours", None), "postgresql://db/ours");
        assert_eq!(on_given_server("postgresql:///live?host=/run", "ours", None), "postgresql:///ours?host=/run");
    }
}
