//! The real gateway as a process that can be killed: this program, started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tidegate::config::{Sources, load};

/// The argument that makes this program the gateway.
pub(crate) const COMMAND: &str = "gateway";

/// A gateway with overload control, gate and checks; killed when this value goes.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts on this address, with settings as `--set` takes them.
    pub(crate) fn start(address: &str, settings: &[&str]) -> Self {
        let listen = format!("listen.mqtt={address}");
        let always =
            ["plugins=[\"check\",\"overload\",\"gate\"]", "admin.listen=127.0.0.1:0", "log.level=error"];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(COMMAND)
            .args(always.iter().chain(settings).chain([&&*listen]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The banner names each listener, the admin endpoint last.
        let addresses = lines.filter_map(|line| {
            let address = line.split_whitespace().nth(1)?;
            address.trim_start_matches("http://").trim_end_matches("/metrics").parse().ok()
        });
        let [address, admin] = addresses.take(2).collect::<Vec<SocketAddr>>()[..] else {
            panic!("the gateway does not start");
        };
        Self { child, address, admin }
    }

    /// What a metric with these labels says now; none if there is no such metric.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the gateway, until the program that started it is gone.
pub(crate) fn serve(settings: &[String]) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        #[allow(clippy::disallowed_methods)]
        std::process::exit(0);
    });
    let sources =
        Sources { file: None, usual_files: Vec::new(), environment: Vec::new(), set: settings.to_vec() };
    tidegate::serve_with(&load(&sources).unwrap(), Vec::new()).unwrap();
}
