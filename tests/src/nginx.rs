//! A plain reverse proxy as Debian packages it: with its defaults (HTTP/1.0 to the server, answers buffered), or set up
//! as our documentation says.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::daemon::{Daemon, Folder, find_program, free_port, until};

const START_DEADLINE: Duration = Duration::from_secs(20);
const PORTS_TRIED_MAX: usize = 5;
/// Two for each request under way; the default is 512.
const CONNECTIONS: usize = 4096;
/// Where the documentation says how.
const DOCUMENTATION: &str = include_str!("../../docs/how-to/run-behind-nginx.md");

pub struct Nginx {
    pub base: String,
    // Before `_folder`: the process must be gone when the directory is removed.
    _daemon: Daemon,
    _folder: Folder,
}

impl Nginx {
    /// Passes everything on to `base`; `settings` are lines for its `location`.
    pub fn before(base: &str, settings: &str) -> Nginx {
        Nginx::of(|port| {
            format!("server {{\nlisten 127.0.0.1:{port};\nlocation / {{\nproxy_pass {base};\n{settings}}}\n}}\n")
        })
    }

    /// Passes everything on to `base` with the lines of the documentation; only the listening address and the upstream
    /// are others.
    pub fn as_documented(base: &str) -> Nginx {
        let lines = DOCUMENTATION.split("```nginx\n").nth(1).and_then(|rest| rest.split("```").next());
        let lines = lines.expect("the documentation has lines for nginx");
        let address = base.strip_prefix("http://").expect("the server speaks plain HTTP");
        Nginx::of(|port| {
            let listen = format!("listen 127.0.0.1:{port};");
            let changes = [("listen 443 ssl;", listen), ("server 127.0.0.1:8080;", format!("server {address};"))];
            changes.iter().fold(lines.to_owned(), |text, (from, to)| {
                assert_eq!(text.matches(from).count(), 1, "{from:?} in the lines of the documentation");
                text.replace(from, to)
            })
        })
    }

    /// `servers` are the lines for its `http`, once it is known on which port it listens.
    fn of(servers: impl Fn(u16) -> String) -> Nginx {
        let folder = Folder::new("outlast-nginx-");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            if let Some(daemon) = start_on(&folder, port, &servers(port)) {
                return Nginx { base: format!("http://127.0.0.1:{port}"), _daemon: daemon, _folder: folder };
            }
        }
        panic!("nginx did not start on any of {PORTS_TRIED_MAX} ports")
    }
}

/// `None` when the port was taken.
fn start_on(folder: &Folder, port: u16, servers: &str) -> Option<Daemon> {
    let place = folder.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {place}/pid;\nerror_log {place}/error.log;\n\
         events {{\nworker_connections {CONNECTIONS};\n}}\nhttp {{\naccess_log off;\n{temporary}{servers}}}\n"
    );
    let file = folder.write("nginx.conf", &text);
    let mut command = folder.command(&find_program("nginx", &[PathBuf::from("/usr/sbin")], "nginx-light"));
    command.arg("-e").arg(folder.path().join("error.log")).arg("-c").arg(file);
    let mut daemon = Daemon::start(folder, command, "KILL");
    let is_up = until("nginx to listen or to end", START_DEADLINE, || {
        if daemon.exit_status().is_some() {
            return Some(false);
        }
        TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(true)
    });
    // Another program on the port is not this one.
    (is_up && daemon.exit_status().is_none()).then_some(daemon)
}
