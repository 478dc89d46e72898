//! How the proxy speaks to the broker behind it: TLS with a certificate of its own, the PROXY protocol.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "clients/certificates.rs"]
mod certificates;
mod common;

use std::io::{Read, Write};
use std::net::TcpListener;

use certificates::Certificates;
use common::packet::*;
use common::server::{Server, Setup, Target};

fn proxy_before(name: &str, upstream: String, more: &[(&'static str, String)]) -> Server {
    let mut settings = vec![("mode", "proxy".to_owned()), ("proxy.upstream", upstream)];
    settings.extend(more.iter().cloned());
    Server::start(name, &Setup { settings, target: Some(Target::ProxyAlone), ..Setup::default() })
}

/// Mosquitto asks for a certificate, and the proxy checks Mosquitto's.
#[test]
fn tls_to_the_upstream() {
    let made = Certificates::make("proxy");
    let text = |path: &std::path::Path| path.display().to_string();
    // these lines belong to Mosquitto's last listener, the one with TLS
    let demand = format!("cafile {}\nrequire_certificate true\n", text(&made.authority));
    let setup = Setup {
        tls: Some((made.server.clone(), made.server_key.clone())),
        mosquitto: Box::leak(demand.into_boxed_str()),
        target: Some(Target::Mosquitto),
        ..Setup::default()
    };
    let broker = Server::start("tls-broker", &setup);
    let address = format!("localhost:{}", broker.mqtts.port());
    let tls = [("proxy.tls", "true".to_owned()), ("proxy.ca", text(&made.authority))];
    let own = [("proxy.certificate", text(&made.client)), ("proxy.key", text(&made.client_key))];
    let server = proxy_before("tls-proxy", address.clone(), &[&tls[..], &own[..]].concat());
    let mut client = server.client(Version::V5);
    client.subscribe("t", 1);
    client.publish(Publish::new("t", vec![b'x'; 200_000]).qos(1));
    assert_eq!(client.receive().payload.len(), 200_000);
    let nameless = proxy_before("tls-nameless", address.clone(), &tls);
    assert_eq!(nameless.attempt(&Connect::v5("c")).connack.code, 0x88, "Mosquitto wants a certificate");
    let wrong = [("proxy.server_name", "other.example".to_owned())];
    let mistaken = proxy_before("tls-mistaken", address, &[&tls[..], &own[..], &wrong[..]].concat());
    assert_eq!(mistaken.attempt(&Connect::v5("c")).connack.code, 0x88, "it is not who it should be");
}

/// The upstream is told where the client comes from, before anything else.
#[test]
fn the_proxy_protocol() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = upstream.local_addr().expect("an address").to_string();
    let server = proxy_before("told", address, &[("proxy.proxy_protocol", "true".to_owned())]);
    let client = std::thread::scope(|scope| {
        let client = scope.spawn(|| server.connect(&Connect::v311("c")));
        let (mut stream, _) = upstream.accept().expect("the proxy");
        let mut header = [0; 28 + 2];
        stream.read_exact(&mut header).expect("a header");
        assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C");
        assert_eq!((header[28], header[16..20].to_vec()), (0x10, vec![127, 0, 0, 1]), "then CONNECT");
        stream.write_all(&[0x20, 2, 0, 0]).expect("CONNACK");
        let client = client.join().expect("a client");
        let port = client.stream().local_addr().expect("an address").port();
        assert_eq!(header[24..26], port.to_be_bytes());
        client
    });
    drop(client);
}
